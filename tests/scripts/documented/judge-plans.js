export const meta = {
  name: 'judge-plans',
  description: 'Drafts a plan from several angles, lets judges compare the drafts in pairs, and improves the winner',
  phases: [{ title: 'Draft' }, { title: 'Judge' }, { title: 'Improve' }],
}

const CHOICE = { type: 'object', required: ['winner'], properties: { winner: { enum: ['A', 'B'] } }, additionalProperties: false }
const angles = args.angles ?? ['smallest change', 'least risk']

phase('Draft')
let drafts = (await parallel(angles.map(angle => () => agent(`Draft a plan for ${args.goal}: ${angle}`, { label: angle, model: 'sonnet' })))).map(
  (text, i) => ({ text, angle: angles[i] }),
)
drafts = drafts.filter(draft => draft.text !== null)
if (drafts.length === 0) throw new Error('no draft was written')

phase('Judge')
async function better(a, b) {
  const { winner } = await agent(`Which plan is better?\nA: ${a.text}\nB: ${b.text}`, { schema: CHOICE, label: `${a.angle} or ${b.angle}` })
  return winner === 'A' ? a : b
}
while (drafts.length > 1) {
  const pairs = []
  for (let i = 0; i < drafts.length; i += 2) pairs.push(drafts.slice(i, i + 2))
  drafts = await Promise.all(pairs.map(([a, b]) => (b ? better(a, b) : a)))
}

phase('Improve')
const [winner] = drafts
return { angle: winner.angle, plan: await agent(`Improve: ${winner.text}`) }
