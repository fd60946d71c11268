export const meta = {
  name: 'review',
  description: 'Finds the risks of a plan, and lets three reviewers vote on each of them',
  phases: [{ title: 'Find' }, { title: 'Vote' }],
  inputSchema: { type: 'object', required: ['plan'], properties: { plan: { type: 'string' } } },
}

const RISKS = {
  type: 'object',
  required: ['risks'],
  properties: { risks: { type: 'array', items: { type: 'string' } } },
}

phase('Find')
const { risks } = await agent(`List the risks of this plan: ${args.plan}`, { schema: RISKS, label: 'find' })

phase('Vote')
const verdicts = await pipeline(
  risks,
  // Two equal votes decide; the third reviewer is cancelled if it is not needed.
  risk => threshold(2, ['cost', 'safety', 'time'].map(view => () => agent(`Is this a real risk for ${view}? ${risk}`, { label: view }))),
  (votes, risk) => ({ risk, isReal: votes.filter(vote => vote === 'yes').length >= 2 }),
)
const real = verdicts.filter(verdict => verdict && verdict.isReal)
log(`${real.length} of ${risks.length} risks are real`)
return real.map(verdict => verdict.risk)
