// node inspector.mjs TARGET JOBS modern|legacy: Inspector's CLI, one run a job. TARGET is a URL, or a command as a JSON list.
import { spawn } from 'node:child_process';
import { eachJob, words } from './answers.mjs';

const [target, jobs, era] = process.argv.slice(2);
const at = target.startsWith('[') ? JSON.parse(target) : [target, '--transport', 'http'];

function inspector(job) {
  const flags = ['--protocol-era', era, '--method', 'tools/call', '--tool-name', job.tool, '--tool-args-json', JSON.stringify(job.arguments), '--format', 'json', '-q'];
  // Its own flags come first: what follows a command is given to the command.
  const args = target.startsWith('[') ? [...flags, '--transport', 'stdio', '--', ...at] : [...at, ...flags];
  return new Promise((resolve) => {
    const child = spawn('mcp-inspector', ['--cli', ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (d) => { stdout += d; });
    child.stderr.on('data', (d) => { stderr += d; });
    child.on('close', (code) => resolve({ code, stdout, stderr }));
  });
}

await eachJob(JSON.parse(jobs), async (job) => {
  const { code, stdout, stderr } = await inspector(job);
  process.stderr.write(stderr);
  for (const line of stdout.trim().split('\n').reverse()) {
    try {
      const said = JSON.parse(line);
      return words(said.result ?? said);
    } catch { /* not this line */ }
  }
  return { error: { code, message: stderr.trim().slice(-300) || stdout.trim().slice(-300) } };
});
