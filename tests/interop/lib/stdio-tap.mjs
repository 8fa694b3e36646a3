// node stdio-tap.mjs FILE COMMAND...: stands between a client and a server over stdio. Bytes pass as they come, and every
// line is noted in FILE, with the process that it belongs to (a client may start a second, throw-away one).
import { spawn } from 'node:child_process';
import { appendFileSync } from 'node:fs';

const [file, command, ...args] = process.argv.slice(2);
const note = (entry) => appendFileSync(file, JSON.stringify({ on: process.pid, ...entry }) + '\n');

function lines(from) {
  let rest = '';
  return (chunk) => {
    const parts = (rest + chunk).split('\n');
    rest = parts.pop();
    for (const line of parts.filter((l) => l.trim())) {
      let messages;
      try { messages = [JSON.parse(line)].flat(); } catch { note({ from, junk: line.slice(0, 300) }); continue; }
      for (const message of messages) note({ from, message });
    }
  };
}

const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
const [asked, answered] = [lines('client'), lines('server')];
process.stdin.on('data', (chunk) => { asked(chunk); child.stdin.write(chunk); });
process.stdin.on('end', () => { note({ from: 'client', end: 'eof' }); child.stdin.end(); });
child.stdin.on('error', () => {});
child.stdout.on('data', (chunk) => { answered(chunk); process.stdout.write(chunk); });
process.stdout.on('error', () => child.stdin.end());
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => { note({ from: 'client', end: signal }); child.kill(signal); });
child.on('close', (code, signal) => {
  note({ from: 'server', end: signal ?? code });
  process.exitCode = code ?? 1;
  process.stdin.destroy();
});
