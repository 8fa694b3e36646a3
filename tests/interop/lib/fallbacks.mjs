// node fallbacks.mjs PLAN: clients that cannot take a task, with a limit below the length of a job, against each fallback;
// and an agent over stdio. Prints a line for each, `ok ...` or `FAIL ...`. PLAN is JSON: { cache, work, base, command }; in
// the command, which the agent starts, @DIR@ is a fresh directory.
import { spawn } from 'node:child_process';

const LIMIT_MS = 60_000;
const plan = JSON.parse(process.argv[2]);
const running = new Set();
process.on('SIGTERM', () => { for (const end of running) end(); process.exit(143); });

const LONG = { tool: 'trigger-long-running-operation', arguments: { duration: 7, steps: 7 } };
const DONE = /^Long running operation completed. Duration: 7 seconds, Steps: 7.$/;
const COMPANIONS = ['check_job', 'cancel_job', 'answer_job'];

const ts = (kind) => ['node', `${plan.cache}/npm/clients/limited_ts.mjs`, kind];
const py = (kind) => [`${plan.cache}/${kind === 'py2' ? 'python' : 'python-v1'}/bin/python`, `${plan.cache}/npm/clients/limited_py.py`, kind];
const clients = {
  ts1: ts('ts1'), 'ts2-legacy': ts('ts2-legacy'), 'ts2-modern': ts('ts2-modern'), py1: py('py1'), py2: py('py2'),
  inspector: ['node', `${plan.cache}/npm/clients/limited_inspector.mjs`, 'legacy'],
  // Hosts that know programs only, as most desktop hosts: their program is mcp-remote.
  'ts1 by mcp-remote': ts('ts1'), 'ts2-modern by mcp-remote': ts('ts2-modern')
};
const modern = ['ts2-modern', 'py2', 'ts2-modern by mcp-remote'];

const expect = (what, is) => (is ? [] : [what]);
/** A handle, then checks, and the result: each call below the limit. */
const byHandle = (said) => [
  ...expect('the result is another', DONE.test(said.text ?? '') && !said.isError),
  ...expect('it was not told to check', said.calls?.length > 1 && said.calls.slice(1).every((name) => name === 'check_job')),
  ...expect('the tools are not listed once', !said.listed || COMPANIONS.every((name) => said.listed.filter((it) => it === name).length === 1))
];
const refused = (said) => expect('it was not told why', said.isError && /Nothing was run.*fallback = "refuse"/s.test(said.text) && said.calls.length === 1);
const missing = (said) => expect('it is not -32021', said.error?.code === -32021 || /-32021|missing.*capabilit/i.test(said.error?.message ?? ''));
const held = (said) => expect('the result is another', DONE.test(said.text ?? '') && said.calls?.length === 1);
const gaveUp = (said) => expect('the limit is none', /timed out|timeout/i.test(said.error?.message ?? ''));

const cases = [];
const limit = 6000;
const at = (fallback, client) => {
  const url = `${plan.base}/${fallback}/mcp`;
  return client.endsWith('mcp-remote') ? JSON.stringify(['mcp-remote', url]) : url;
};
for (const client of Object.keys(clients)) {
  cases.push([`${client} handle`, client, at('handle', client), { ...LONG, limit }, byHandle]);
  cases.push([`${client} refuse`, client, at('refuse', client), { ...LONG, limit }, modern.includes(client) ? missing : refused]);
  // Progress moves the limit of these alone, and only where the host wants that.
  if (client.startsWith('ts')) cases.push([`${client} wait, with progress`, client, at('wait', client), { ...LONG, limit, progress: true }, held]);
}
// Those of Python have no limit on a call unless the host sets one, but one on the silence of a stream (300 s).
for (const client of ['py1', 'py2']) {
  cases.push([`${client} wait, with a limit on silence`, client, at('wait', client), { ...LONG, silence: limit }, held]);
  cases.push([`${client} wait, with progress: its limit bites`, client, at('wait', client), { ...LONG, limit, progress: true }, gaveUp]);
}
cases.push(['ts1 wait, without progress: its limit bites', 'ts1', at('wait', 'ts1'), { ...LONG, limit }, gaveUp]);
cases.push(['inspector wait: its limit bites', 'inspector', at('wait', 'inspector'), { ...LONG, limit }, gaveUp]);
const stdio = (title) => plan.command.map((word) => word.replaceAll('@DIR@', `${plan.work}/agent-${title}`));
const agent = (title, job, judge) => cases.push([`agent over stdio ${title}`, 'ts1', JSON.stringify(stdio(title)), { limit, ...job }, judge]);
agent('checks', LONG, byHandle);
agent('answers', { tool: 'trigger-elicitation-request', arguments: {} }, (said) => [
  ...expect('the result is another', /User provided the requested information.*Name: /s.test(said.text ?? '')),
  ...expect('it did not answer once', said.calls?.filter((name) => name === 'answer_job').length === 1)
]);
agent('cancels', { ...LONG, goal: 'cancel' }, (said) => [
  ...expect('it is not cancelled', /^Job \S+ is cancelled/.test(said.text ?? '') && !said.isError),
  ...expect('it did more than that', `${said.calls}` === `${LONG.tool},cancel_job`)
]);

/** Runs a client in a process group of its own, so that nothing of it outlives the limit. */
function run([file, ...args]) {
  return new Promise((resolve) => {
    const child = spawn(file, args, { detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
    let [stdout, stderr] = ['', ''];
    child.stdout.on('data', (d) => { stdout += d; });
    child.stderr.on('data', (d) => { stderr += d; });
    const end = () => { try { process.kill(-child.pid, 'SIGKILL'); } catch { /* gone already */ } };
    running.add(end);
    const timer = setTimeout(end, LIMIT_MS);
    const done = () => { clearTimeout(timer); end(); running.delete(end); resolve({ stdout, stderr }); };
    child.on('error', (error) => { stderr += String(error); done(); });
    child.on('close', done);
  });
}

async function one([title, client, target, job, judge]) {
  const [program, script, kind] = clients[client];
  const { stdout, stderr } = await run([program, script, target, JSON.stringify(job), kind]);
  let said = {};
  try { said = JSON.parse(stdout.trim().split('\n').at(-1)); } catch { /* judged below */ }
  const wrong = judge(said);
  const shown = JSON.stringify(said).slice(0, 600);
  console.log(wrong.length ? `FAIL fallbacks ${title}: ${wrong.join('; ')}\n     it said ${shown} ${stderr.slice(-400)}` : `ok   fallbacks ${title}: ${said.calls ?? said.error?.message} ${said.ms} ms`);
}

// The clients mostly wait.
const queue = [...cases];
await Promise.all(Array.from({ length: 7 }, async () => {
  for (let next = queue.shift(); next; next = queue.shift()) await one(next);
}));
