export const meta = {
  name: 'review-changes',
  description: 'Reviews the changed files from several points of view, and lets independent agents refute each finding',
  whenToUse: 'Before a pull request is opened',
  phases: [
    { title: 'Scope', detail: 'lists the changed files' },
    { title: 'Review', detail: 'one agent for each point of view', model: 'opus' },
    { title: 'Verify', detail: 'three agents for each finding' },
    { title: 'Report' },
  ],
}

const FILES = { type: 'object', required: ['files'], properties: { files: { type: 'array', items: { type: 'string' } } } }
const FINDINGS = {
  type: 'object',
  required: ['findings'],
  properties: {
    findings: {
      type: 'array',
      items: {
        type: 'object',
        required: ['title', 'file', 'severity'],
        properties: {
          title: { type: 'string' },
          file: { type: 'string' },
          severity: { enum: ['high', 'low'] },
        },
      },
    },
  },
}
const VERDICT = {
  type: 'object',
  required: ['isReal', 'reason'],
  properties: { isReal: { type: 'boolean' }, reason: { type: 'string' } },
}
const VIEWS = [
  { key: 'correctness', prompt: 'Find errors' },
  { key: 'security', prompt: 'Find security problems' },
  { key: 'tests', prompt: 'Find missing tests' },
]
const base = (args && args.base) || 'main'

phase('Scope')
const { files } = await agent(`List the files that differ from ${base}.`, { schema: FILES, label: 'scope', effort: 'low' })
if (files.length === 0) {
  log('nothing has changed')
  return { confirmed: [], rejected: 0 }
}
log(`${files.length} files, ${VIEWS.length} points of view`)

const reviewed = await pipeline(
  VIEWS,
  view =>
    agent(`${view.prompt} in: ${files.join(', ')}`, {
      label: `review:${view.key}`,
      phase: 'Review',
      schema: FINDINGS,
      agentType: 'reviewer',
      isolation: 'worktree',
    }),
  (review, view) =>
    parallel(
      review.findings.map(finding => async () => {
        const votes = await parallel(
          Array.from({ length: 3 }, (_, i) => () =>
            agent(`Refuter ${i + 1}: is "${finding.title}" in ${finding.file} real?`, {
              label: `verify:${view.key}`,
              phase: 'Verify',
              schema: VERDICT,
            }),
          ),
        )
        const real = votes.filter(Boolean).filter(vote => vote.isReal).length
        return { ...finding, view: view.key, isReal: real >= 2 }
      }),
    ),
)

const all = reviewed.filter(Boolean).flat().filter(Boolean)
const seen = new Set()
const confirmed = all.filter(finding => {
  const key = `${finding.file}:${finding.title}`
  return finding.isReal && !seen.has(key) && seen.add(key)
})
const order = { high: 0, low: 1 }
confirmed.sort((a, b) => order[a.severity] - order[b.severity])

phase('Report')
const report = await agent(`Write a report of:\n${JSON.stringify(confirmed, null, 2)}`, { label: 'report' })
return { confirmed: confirmed.map(finding => finding.title), rejected: all.length - confirmed.length, report }
