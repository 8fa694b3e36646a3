// node ran.mjs NAME FILE [--open] [--left=TOOL]... [TOOL=STARTS | TOOL=LEAST..MOST]...
// Reads the fixture's log and prints one line. It is ok only if each tool that is named ran as often as it was called (a
// call that was promoted, refused, asked back or cancelled is never sent twice), and no run was left open (without --open);
// one run of a tool that is named by --left may be: it waited for input at the stop, and is left to the next process.
import { existsSync, readFileSync } from 'node:fs';

const [name, file, ...words] = process.argv.slice(2);
const expected = words.filter((word) => !word.startsWith('--'));
const left = (tool) => words.filter((word) => word === `--left=${tool}`).length;
const mayBeOpen = words.includes('--open');
const log = existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n').filter(Boolean) : [];
const events = log.map((line) => JSON.parse(line)).filter((e) => e.tool);
const count = (ev, tool) => events.filter((e) => e.ev === ev && e.tool === tool).length;
const wrong = [];
const wanted = new Map(expected.map((word) => [word.slice(0, word.lastIndexOf('=')), word.slice(word.lastIndexOf('=') + 1).split('..').map(Number)]));
const tools = new Set([...events.map((e) => e.tool), ...wanted.keys()]);
let runs = 0;
for (const tool of tools) {
  const began = count('start', tool);
  const open = began - count('cancelled', tool) - count('finish', tool) - count('error', tool);
  runs += began;
  const [least, most = least] = wanted.get(tool) ?? [0, Infinity];
  if (began < least || began > most) wrong.push(`${tool} ran ${began} times instead of ${wanted.get(tool).join(' to ')}`);
  if ((open < 0 || open > left(tool)) && !mayBeOpen) wrong.push(`${open} runs of ${tool} were never ended`);
}
if (!runs) wrong.push('nothing ran at all');
console.log(wrong.length ? `FAIL ${name}: ${wrong.join('; ')}` : `ok   ${name}: ${runs} runs of ${tools.size} tools, each call once${mayBeOpen ? '' : ' and each ended'}`);
process.exit(wrong.length ? 1 : 0);
