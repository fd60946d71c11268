export const meta = { name: 'migrate-files', description: 'Migrates files in batches, and repairs those whose check fails', phases: [{ title: 'Migrate' }, { title: 'Repair' }] }

const RESULT = {
  type: 'object',
  required: ['ok'],
  properties: { ok: { type: 'boolean' }, error: { type: 'string' } },
}
const size = 2
const batches = []
for (let at = 0; at < args.files.length; at += size) batches.push(args.files.slice(at, at + size))

const failed = []
for (const [number, batch] of batches.entries()) {
  phase('Migrate')
  const results = await parallel(batch.map(file => () => agent(`Migrate ${file}`, { schema: RESULT, label: file, isolation: 'worktree' })))
  results.forEach((result, i) => {
    if (!result?.ok) failed.push({ file: batch[i], error: result?.error ?? 'the agent failed' })
  })
  log(`batch ${number + 1} of ${batches.length}:`, { failed: failed.length })
}

phase('Repair')
const repaired = []
for (const { file, error } of failed) {
  let attempts = 0
  let ok = false
  while (!ok && attempts < 3) {
    attempts++
    try {
      ok = (await agent(`Repair ${file} (${error}), attempt ${attempts}`, { schema: RESULT })).ok
    } catch (cause) {
      log(`attempt ${attempts} of ${file} failed:`, cause)
    }
  }
  repaired.push([file, ok, attempts])
}
const summary = await workflow('summarize', { migrated: args.files.length - failed.length, repaired })
return summary
