// node ran.mjs NAME FILE TOOL=STARTS...
// Reads the fixture's log and prints one line. It is ok only if each tool ran exactly as often as the suite's six
// scenarios called it (a call that was promoted, refused or cancelled is never sent twice), and nothing is still running.
import { existsSync, readFileSync } from 'node:fs';

const [name, file, ...expected] = process.argv.slice(2);
const log = existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n').filter(Boolean) : [];
const events = log.map((line) => JSON.parse(line)).filter((e) => e.tool);
const count = (ev, tool) => events.filter((e) => e.ev === ev && e.tool === tool).length;
const wrong = [];
const seen = [];
for (const [tool, starts] of expected.map((word) => word.split('='))) {
  const [began, cancelled] = [count('start', tool), count('cancelled', tool)];
  const open = began - cancelled - count('finish', tool) - count('error', tool);
  seen.push(`${tool} ran ${began} times${cancelled ? `, ${cancelled} of them cancelled` : ''}`);
  if (began !== Number(starts)) wrong.push(`${tool} ran ${began} times instead of ${starts}`);
  if (open !== 0) wrong.push(`${open} runs of ${tool} were never ended`);
}
const others = [...new Set(events.map((e) => e.tool))].filter((tool) => !expected.some((word) => word.startsWith(`${tool}=`)));
if (others.length) wrong.push(`${others} ran too`);
console.log(wrong.length ? `FAIL ${name}: ${wrong.join('; ')}` : `ok   ${name}: ${seen.join('; ')}`);
process.exit(wrong.length ? 1 : 0);
