// node clients.mjs PLAN: runs clients against targets, some at a time, and prints a line for each, `ok ...` or `FAIL ...`.
// PLAN is JSON: { name, bin, cache, work, atOnce, clients: [NAME], targets: [{ name, server, url | command }] }; a command
// is what the client starts (with a tap before it). In a command, @DIR@ is a fresh directory for this run.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { startTap } from './tap.mjs';
import { clients, servers } from './table.mjs';
import { judge, judgeEra } from './wire.mjs';

const LIMIT_MS = 90_000;
const plan = JSON.parse(process.argv[2]);
const running = new Set();
process.on('SIGTERM', () => { for (const end of running) end(); process.exit(143); });

function commandLine(client, target, jobs) {
  const path = `${plan.cache}/npm/clients/${client.program}`;
  const program = client.python ? [`${plan.cache}/${client.python}/bin/python`, path]
    : client.program.endsWith('.mjs') ? ['node', path] : [`${plan.work}/${client.program}`];
  return [...program, target, JSON.stringify(jobs.map(({ name, tool, arguments: args }) => ({ name, tool, arguments: args }))), ...(client.mode ? [client.mode] : [])];
}

/** Runs the client in a process group of its own, so that nothing of it outlives the limit. */
function run([file, ...args]) {
  return new Promise((resolve) => {
    const child = spawn(file, args, { detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
    const out = { stdout: '', stderr: '', code: null, late: false };
    child.stdout.on('data', (d) => { out.stdout += d; });
    child.stderr.on('data', (d) => { out.stderr += d; });
    const end = () => { try { process.kill(-child.pid, 'SIGKILL'); } catch { /* gone already */ } };
    running.add(end);
    const timer = setTimeout(() => { out.late = true; end(); }, LIMIT_MS);
    const done = () => { clearTimeout(timer); end(); running.delete(end); resolve(out); };
    child.on('error', (error) => { out.stderr += String(error); done(); });
    child.on('close', (code) => { out.code = code; done(); });
  });
}

/** The line of a client's stderr that says what went wrong. */
function reason(stderr) {
  const lines = stderr.trim().split('\n');
  return (lines.findLast((l) => /^\S*(error|exception)\b/i.test(l)) ?? lines.at(-1)).slice(0, 300);
}

function parsed(text) {
  return text.split('\n').flatMap((line) => { try { return [JSON.parse(line)]; } catch { return []; } });
}

async function one(name, target) {
  const client = clients[name];
  const jobs = servers[target.server];
  const stem = `${plan.work}/${plan.name}.${target.name}.${name}`.replaceAll(' ', '-');
  let out;
  let wire;
  if (target.url) {
    const tap = await startTap(target.url);
    out = await run(commandLine(client, tap.url, jobs));
    tap.close();
    wire = tap.wire;
  } else {
    mkdirSync(`${stem}.dir`, { recursive: true });
    const file = `${stem}.tap`;
    const behind = target.command.map((word) => word.replaceAll('@DIR@', `${stem}.dir`));
    const tapped = ['node', fileURLToPath(new URL('stdio-tap.mjs', import.meta.url)), file, ...behind];
    out = await run(commandLine(client, JSON.stringify(tapped), jobs));
    wire = existsSync(file) ? parsed(readFileSync(file, 'utf8')) : [];
  }
  writeFileSync(`${stem}.log`, [`exit ${out.code}`, '--- stdout', out.stdout, '--- stderr', out.stderr, '--- wire', ...wire.map((e) => JSON.stringify(e).slice(0, 3000))].join('\n'));
  const said = parsed(out.stdout);
  const wrong = judgeEra(wire, client.era);
  if (out.late) wrong.push(`the client had to be stopped after ${LIMIT_MS / 1000} s`);
  else if (out.code !== 0) wrong.push(`the client ended with code ${out.code}: ${reason(out.stderr)}`);
  const seen = [];
  for (const job of jobs) {
    const one = judge(wire, client.era, job, said.find((line) => line.job === job.name), client.cannot?.[job.name]);
    wrong.push(...one.wrong.map((w) => `${job.name}: ${w}`));
    seen.push(`${job.name}: ${one.seen}`);
  }
  const title = `${plan.name} ${target.name} ${name}`;
  console.log(wrong.length ? [`FAIL ${title}`, ...wrong.map((w) => `     ${w}`), `     log: ${stem}.log`].join('\n') : `ok   ${title}: ${seen.join('; ')}`);
  return wrong.length === 0;
}

const queue = plan.targets.flatMap((target) => plan.clients.map((name) => [name, target]));
let failed = 0;
await Promise.all(Array.from({ length: plan.atOnce }, async () => {
  for (let next = queue.shift(); next; next = queue.shift()) if (!(await one(...next))) failed += 1;
}));
process.exit(failed ? 1 : 0);
