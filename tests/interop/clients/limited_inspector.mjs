// node limited_inspector.mjs URL JOB: Inspector's CLI in its legacy era, one run a call, which does what the results tell it.
// Its limit is always 60 s: here they last JOB.limit ms.
import { spawn } from 'node:child_process';
import { pursue } from './agent.mjs';

const [target, given] = process.argv.slice(2);
const job = JSON.parse(given);
const scaled = `const real = setTimeout; globalThis.setTimeout = (f, ms, ...rest) => real(f, ms === 60_000 ? ${job.limit} : ms, ...rest)`;
const env = { ...process.env, NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(scaled)}` };

function call(name, args) {
  const flags = ['--protocol-era', 'legacy', '--method', 'tools/call', '--tool-name', name, '--tool-args-json', JSON.stringify(args), '--format', 'json', '-q'];
  return new Promise((resolve, reject) => {
    const child = spawn('mcp-inspector', ['--cli', target, '--transport', 'http', ...flags], { stdio: ['ignore', 'pipe', 'pipe'], env });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (d) => { stdout += d; });
    child.stderr.on('data', (d) => { stderr += d; });
    child.on('close', (code) => {
      for (const line of stdout.trim().split('\n').reverse()) {
        try {
          const said = JSON.parse(line);
          return resolve(said.result ?? said);
        } catch { /* not this line */ }
      }
      return reject(new Error(`it ended with ${code} and said ${stdout.slice(-300)} ${stderr.slice(-300)}`));
    });
  });
}

const began = Date.now();
let said;
try {
  said = await pursue(call, job.tool, job.arguments, job.goal);
} catch (error) {
  said = { error: { message: String(error?.message ?? error).slice(0, 400) } };
}
console.log(JSON.stringify({ ...said, ms: Date.now() - began }));
