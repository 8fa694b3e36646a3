// node drive.mjs --name NAME --url URL --tool TOOL --text EXPECTED --log FILE -- COMMAND ARG...
// Runs one client against URL (the word @URL@ in its arguments is replaced), with a tap in between, and prints one
// line, `ok ...` or `FAIL ...`. It is ok only if the wire shows that the tool was called once, that a task was the
// answer, that tasks/get was polled to `completed`, and that both the wire and the client have the right text.
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { startTap } from './tap.mjs';

const LIMIT_MS = 60_000;
const { values: opt, positionals: command } = parseArgs({
  allowPositionals: true,
  options: { name: { type: 'string' }, url: { type: 'string' }, tool: { type: 'string' }, text: { type: 'string' }, log: { type: 'string' } }
});

/** Runs the client in a process group of its own, so that nothing of it outlives the limit. */
function runClient(url) {
  return new Promise((resolve) => {
    const [file, ...args] = command.map((word) => word.replaceAll('@URL@', url));
    const child = spawn(file, args, { detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
    const out = { stdout: '', stderr: '', code: null, late: false };
    child.stdout.on('data', (d) => { out.stdout += d; });
    child.stderr.on('data', (d) => { out.stderr += d; });
    const end = () => { try { process.kill(-child.pid, 'SIGKILL'); } catch { /* gone already */ } };
    const timer = setTimeout(() => { out.late = true; end(); }, LIMIT_MS);
    process.on('SIGTERM', () => { end(); process.exit(143); });
    child.on('error', (error) => { out.stderr += String(error); clearTimeout(timer); resolve(out); });
    child.on('close', (code) => { out.code = code; clearTimeout(timer); end(); resolve(out); });
  });
}

/** The line of a client's stderr that says what went wrong. */
function reason(stderr) {
  const lines = stderr.trim().split('\n');
  return lines.findLast((l) => /^\S*(error|exception)\b/i.test(l)) ?? lines.at(-1);
}

const show = (value, room = 200) => (JSON.stringify(value) ?? String(value)).slice(0, room);

/** What the client itself says it got: our drivers print `text` and `taskId`, Inspector the result. */
function clientSays(stdout) {
  for (const line of stdout.trim().split('\n').reverse()) {
    try {
      const said = JSON.parse(line);
      const result = said.result ?? said;
      return { text: said.text ?? result.content?.[0]?.text, isError: Boolean(result.isError), taskId: said.taskId };
    } catch { /* not this line */ }
  }
  return {};
}

function judge(exchanges, client) {
  const wrong = [];
  const calls = exchanges.filter((e) => e.method === 'tools/call' && e.params?.name === opt.tool);
  if (calls.length !== 1) wrong.push(`the tool was called ${calls.length} times on the wire`);
  if (exchanges.some((e) => e.method === 'initialize')) wrong.push('the client fell back to initialize');

  const created = calls[0]?.result;
  const taskId = created?.taskId;
  if (created?.resultType !== 'task' || typeof taskId !== 'string') wrong.push(`no task: tools/call was answered with ${show(calls[0]?.error ?? created)}`);
  else if (created.status !== 'working') wrong.push(`the task began as ${show(created.status)}`);

  const polls = exchanges.filter((e) => e.method === 'tasks/get' && e.params?.taskId === taskId);
  const refused = polls.find((e) => e.error || e.status !== 200 || e.result?.resultType !== 'complete' || e.result?.taskId !== taskId);
  if (refused) wrong.push(`a tasks/get was answered with HTTP ${refused.status} ${show(refused.error ?? refused.result)}`);
  const final = polls.at(-1)?.result;
  if (taskId && final?.status !== 'completed') wrong.push(`the last of ${polls.length} polls says ${show(final?.status)}`);
  if (final?.status === 'completed' && final.result?.content?.[0]?.text !== opt.text) wrong.push(`the task's result is ${show(final.result)}`);

  const said = clientSays(client.stdout);
  if (client.late) wrong.push(`the client had to be stopped after ${LIMIT_MS / 1000} s`);
  else if (client.code !== 0) wrong.push(`the client ended with code ${client.code}: ${show(reason(client.stderr))}`);
  if (said.text !== opt.text || said.isError) wrong.push(`the client got ${show(said.text)}${said.isError ? ' as an error' : ''}`);
  if (said.taskId !== undefined && said.taskId !== taskId) wrong.push(`the client saw task ${show(said.taskId)}`);

  const working = polls.filter((e) => e.result?.status === 'working');
  const message = working.map((e) => e.result.statusMessage).filter(Boolean).at(-1);
  const seen = `task ${String(taskId).slice(0, 12)}.. after ${calls[0]?.ms} ms, ${polls.length} polls (${working.length} working), ` +
    `${message ? `last message ${show(message)}, ` : ''}${said.taskId ? 'the client has the same ID, ' : ''}${show(said.text)}`;
  return { wrong, seen };
}

const tap = await startTap(opt.url);
const client = await runClient(tap.url);
await new Promise((r) => setTimeout(r, 50)); // the tap notes an exchange when its socket closes
tap.close();
const { wrong, seen } = judge(tap.exchanges, client);
if (opt.log) {
  writeFileSync(opt.log, [`exit ${client.code}`, '--- stdout', client.stdout, '--- stderr', client.stderr, '--- wire', ...tap.exchanges.map((e) => show(e, 2000))].join('\n'));
}
console.log(wrong.length ? `FAIL ${opt.name}: ${wrong.join('; ')}` : `ok   ${opt.name}: ${seen}`);
process.exit(wrong.length ? 1 : 0);
