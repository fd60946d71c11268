export const meta = {
  name: 'find-until-dry',
  description: 'Searches in rounds until two rounds in a row find nothing new, or the budget is used up',
  phases: [{ title: 'Find' }, { title: 'Check completeness' }],
}

const FOUND = { type: 'object', required: ['places'], properties: { places: { type: 'array', items: { type: 'string' } } } }
const target = typeof args === 'string' ? args : args.target
const known = new Map()
let dry = 0
let round = 0

while (dry < 2 && round < 10) {
  if (budget.total && budget.remaining() < 1000) {
    log('the budget is nearly used up', budget.spent())
    break
  }
  round++
  phase('Find')
  const rounds = await parallel(
    ['by name', 'by type', 'by caller'].map(how => () =>
      agent(`Round ${round}: find ${target} ${how}. Known: ${[...known.keys()].join(', ') || 'none'}`, {
        schema: FOUND,
        label: `find ${how}`,
        phase: 'Find',
      }),
    ),
  )
  const fresh = rounds
    .filter(Boolean)
    .flatMap(found => found.places)
    .filter(place => !known.has(place))
  fresh.forEach(place => known.set(place, round))
  dry = fresh.length === 0 ? dry + 1 : 0
  log(`round ${round}: ${fresh.length} new, ${known.size} in total`)
}

phase('Check completeness')
const critique = await agent(`What could be missing from: ${[...known.keys()].sort().join(', ')}?`).catch(error => `no answer: ${error.message}`)
return { places: Object.fromEntries(known), rounds: round, critique }
