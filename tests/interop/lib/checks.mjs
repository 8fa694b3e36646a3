// node checks.mjs NAME DIR NEEDED
// Reads what the conformance suite wrote into DIR and prints one line. It is ok only if no check failed or warned and
// exactly NEEDED checks passed: a scenario that stops early, or skips, is not a success.
import { globSync, readFileSync } from 'node:fs';

const [name, dir, needed] = process.argv.slice(2);
const files = globSync(`${dir}/**/checks.json`);
const checks = files.flatMap((f) => JSON.parse(readFileSync(f, 'utf8')));
const by = (status) => checks.filter((c) => c.status === status);
const passed = by('SUCCESS').length;
const bad = checks.filter((c) => c.status !== 'SUCCESS');
if (bad.length === 0 && passed === Number(needed)) {
  console.log(`ok   ${name}: ${passed} checks passed`);
} else {
  console.log(`FAIL ${name}: ${passed} of ${needed} checks passed${files.length ? '' : ', the suite wrote no result'}`);
  for (const c of bad) console.log(`     ${c.status} ${c.id}: ${(c.errorMessage ?? c.description ?? '').slice(0, 600)}`);
  process.exit(1);
}
