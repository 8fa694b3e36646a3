// node suite.mjs PLAN: runs the official conformance suite against a URL and prints a line for each scenario.
// PLAN is JSON: { name, url, revision, dist, out, only: [SCENARIO], as: DIR, lacking }. Each scenario must have as many successful
// checks as suite.json says (a scenario that stops early is no success) and none that failed or warned; with `as`, as
// many as in the run that was kept there. `lacking` says how many checks a scenario cannot make: { SCENARIO: NUMBER }.
import { spawn } from 'node:child_process';
import { createWriteStream, existsSync, readdirSync, readFileSync } from 'node:fs';

const LIMIT_MS = 300_000;
const plan = JSON.parse(process.argv[2]);
const table = JSON.parse(readFileSync(new URL('suite.json', import.meta.url), 'utf8'))[plan.revision];

function suite(words) {
  return new Promise((resolve) => {
    const child = spawn('node', [plan.dist, 'server', '--url', plan.url, ...words, '-o', plan.out], { detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
    const log = createWriteStream(`${plan.out}.log`, { flags: 'a' });
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (d) => log.write(d.toString().split('\n').map((l) => l.slice(0, 1000)).join('\n')));
    const end = () => { try { process.kill(-child.pid, 'SIGKILL'); } catch { /* gone already */ } };
    const timer = setTimeout(end, LIMIT_MS);
    process.on('SIGTERM', () => { end(); process.exit(143); });
    child.on('close', () => { clearTimeout(timer); log.end(); resolve(); });
  });
}

/** The checks of one scenario in a folder that the suite wrote, or undefined. */
function checks(dir, scenario) {
  const folders = existsSync(dir) ? readdirSync(dir) : [];
  const folder = folders.find((f) => f.startsWith(`server-${scenario}-2`) && /^\d{4}-\d\d-\d\dT/.test(f.slice(`server-${scenario}-`.length)));
  const file = `${dir}/${folder}/checks.json`;
  return folder && existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : undefined;
}

const of = (status, all) => (all ?? []).filter((c) => c.status === status);
const only = plan.only.filter((name) => name in table);
if (only.length) {
  const version = ['--spec-version', plan.revision, '--force'];
  await Promise.all(only.map((scenario) => suite(['--scenario', scenario, ...version])));
} else {
  await suite(['--requirements', plan.revision]);
}

let [sum, failed] = [0, 0];
for (const scenario of only.length ? only : Object.keys(table)) {
  const all = checks(plan.out, scenario);
  const bad = (all ?? []).filter((c) => c.status === 'FAILURE' || c.status === 'WARNING');
  const passed = of('SUCCESS', all).length;
  const before = plan.as ? of('SUCCESS', checks(plan.as, scenario)).length : 0;
  const needed = Math.max(table[scenario], before) - (plan.lacking[scenario] ?? 0);
  sum += passed;
  if (all && bad.length === 0 && passed >= needed) continue;
  failed += 1;
  console.log(`FAIL ${plan.name} ${scenario}: ${passed} of ${needed} checks passed${all ? '' : ', the suite wrote no result'}`);
  for (const c of bad) console.log(`     ${c.status} ${c.id}: ${(c.errorMessage ?? c.description ?? '').slice(0, 600)}`);
}
const count = only.length || Object.keys(table).length;
const most = (only.length ? only : Object.keys(table)).reduce((n, s) => n + table[s] - (plan.lacking[s] ?? 0), 0);
console.log(`${failed ? 'FAIL' : 'ok  '} ${plan.name}: ${count - failed} of ${count} scenarios, ${sum} checks passed of ${most}`);
process.exit(failed ? 1 : 0);
