export const meta = {
  name: 'deep-research',
  description: 'Searches from several angles, checks each claim against its sources, and writes an answer with citations',
  phases: [{ title: 'Plan' }, { title: 'Search' }, { title: 'Check' }, { title: 'Write' }],
}

const list = (name, item) => ({ type: 'object', required: [name], properties: { [name]: { type: 'array', items: item } } })
const CLAIM = { type: 'object', required: ['text', 'url'], properties: { text: { type: 'string' }, url: { type: 'string' } } }
const question = args.question
const depth = args.depth ?? 1

phase('Plan')
const { angles } = await agent(`Name angles for: ${question}`, { schema: list('angles', { type: 'string' }) })

const claims = []
for (let level = 0; level < depth; level++) {
  const found = await pipeline(
    angles,
    angle => agent(`Search: ${question} / ${angle}`, { phase: 'Search', label: angle, schema: list('claims', CLAIM) }),
    ({ claims }, angle, index) => claims.map(claim => ({ ...claim, angle, rank: index + 1 })),
    batch =>
      Promise.all(
        batch.map(claim =>
          agent(`Does ${claim.url} say: ${claim.text}?`, { phase: 'Check', schema: { type: 'object', required: ['says'], properties: { says: { type: 'boolean' } } } })
            .then(({ says }) => (says ? claim : null)),
        ),
      ),
  )
  claims.push(...found.flat().filter(Boolean))
}
const urls = [...new Set(claims.map(claim => claim.url))]
if (urls.length === 0) return { answer: null, sources: [] }

phase('Write')
const sources = urls.map((url, i) => `[${i + 1}] ${url}`)
const answer = await agent(
  `Answer "${question}" from:\n${claims.map(claim => `- ${claim.text} [${urls.indexOf(claim.url) + 1}]`).join('\n')}`,
)
return { answer, sources, checked: claims.length }
