// node legacy_tasks.mjs NAME TARGET: the client of the TypeScript SDK 1.32 with its experimental tasks (2025-11-25) against
// Raincheck in front of a server without them. TARGET is a URL, or a command as a JSON list. Prints a line for each step,
// `ok ...` or `FAIL ...`. The user says yes.
import assert from 'node:assert/strict';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CallToolResultSchema, CreateTaskResultSchema, ElicitRequestSchema, TaskStatusNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { elicitation } from './answers.mjs';

const [name, target] = process.argv.slice(2);
const RELATED = 'io.modelcontextprotocol/related-task';
const asked = [];
const client = new Client({ name: 'raincheck-interop-tasks', version: '0' }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, (request) => { asked.push(request.params); return elicitation(request.params); });
const [command, ...args] = target.startsWith('[') ? JSON.parse(target) : [];
const transport = command ? new StdioClientTransport({ command, args, env: process.env, stderr: 'ignore' }) : new StreamableHTTPClientTransport(new URL(target));
await client.connect(transport);
const tasks = client.experimental.tasks;

/** The messages of a call, by their type. */
async function stream(tool, args, options) {
  const said = { statuses: [] };
  for await (const message of tasks.callToolStream({ name: tool, arguments: args }, CallToolResultSchema, options)) {
    if (message.type === 'taskStatus') said.statuses.push(message.task.status);
    if (message.task) said.task = message.task;
    if (message.type === 'result') said.result = message.result;
    if (message.type === 'error') said.error = message.error;
  }
  return said;
}
const start = (tool, args, task = {}) => client.request({ method: 'tools/call', params: { name: tool, arguments: args } }, CreateTaskResultSchema, { task });
const text = (result) => result?.content?.[0]?.text;

async function step(title, check) {
  try {
    await check();
    console.log(`ok   ${name} ${title}`);
  } catch (error) {
    console.log(`FAIL ${name} ${title}: ${String(error?.stack ?? error).slice(0, 800)}`);
  }
}

await step('the server says that it has tasks, and the tools whether they may be one', async () => {
  assert.deepEqual(client.getServerCapabilities().tasks, { list: {}, cancel: {}, requests: { tools: { call: {} } } });
  const support = Object.fromEntries((await client.listTools()).tools.map((tool) => [tool.name, tool.execution?.taskSupport]));
  assert.equal(support.slow_compute, 'optional');
  assert.equal(support.greet, undefined);
});
await step('a slow call is followed to its result', async () => {
  const said = await stream('slow_compute', { seconds: 1.5, label: 'rain' });
  assert.equal(text(said.result), 'Computed rain in 1.5s');
  assert.equal(said.result._meta[RELATED].taskId, said.task.taskId);
  assert.deepEqual([said.statuses[0], said.statuses.at(-1)], ['working', 'completed']);
});
await step('progress goes on after the handle, under the token of the call, and so do changes of status', async () => {
  const [progress, statuses] = [[], []];
  client.setNotificationHandler(TaskStatusNotificationSchema, ({ params }) => { statuses.push(params); });
  const said = await stream('slow_compute', { seconds: 3, label: 'rain' }, { onprogress: (it) => progress.push(it) });
  assert.equal(text(said.result), 'Computed rain in 3s');
  assert.ok(progress.length > 1, `${progress.length} of progress`);
  const [last] = statuses.slice(-1);
  assert.deepEqual([last?.taskId, last?.status], [said.task.taskId, 'completed']);
});
await step('a call that is no task is held', async () => {
  assert.equal(text(await client.callTool({ name: 'slow_compute', arguments: { seconds: 0.3, label: 'x' } })), 'Computed x in 0.3s');
  assert.equal(text((await stream('greet', { name: 'Ann' })).result), 'Hello, Ann!');
  await assert.rejects(start('greet', { name: 'Ann' }), /cannot be called as a task/);
});
await step('a call that asks is answered where its result is waited for', async () => {
  const said = await stream('confirm_delete', { filename: 'x' });
  assert.equal(text(said.result), 'Deleted x', JSON.stringify(said));
  assert.equal(said.statuses.at(-1), 'input_required');
  assert.equal(asked.at(-1)._meta[RELATED].taskId, said.task.taskId);
});
await step('a call that asks twice is answered twice', async () => {
  const before = asked.length;
  assert.equal(text((await stream('multi_input', {})).result), 'Got Ann and Ann');
  assert.equal(asked.length, before + 2);
});
await step('a tool that fails says why, and so does a server', async () => {
  const failing = await stream('failing_job', {});
  assert.deepEqual([failing.task.status, failing.task.statusMessage], ['failed', 'The job failed']);
  const result = await tasks.getTaskResult(failing.task.taskId, CallToolResultSchema);
  assert.deepEqual([result.isError, text(result)], [true, 'The job failed']);
  const crashed = await stream('protocol_error_job', {});
  assert.equal(crashed.task.status, 'failed');
  await assert.rejects(tasks.getTaskResult(crashed.task.taskId, CallToolResultSchema), /The worker crashed/);
});
await step('a task is cancelled, once', async () => {
  const { task } = await start('slow_compute', { seconds: 30, label: 'x' }, { ttl: 60_000 });
  assert.equal(task.ttl, 60_000);
  assert.equal((await tasks.cancelTask(task.taskId)).status, 'cancelled');
  await assert.rejects(tasks.cancelTask(task.taskId), (error) => error.code === -32602 && /terminal/.test(error.message));
  assert.equal((await tasks.getTask(task.taskId)).status, 'cancelled');
});
await step('all tasks are listed, and one that is unknown is refused', async () => {
  const seen = [];
  let cursor;
  do {
    const page = await tasks.listTasks(cursor);
    seen.push(...page.tasks.map((task) => task.status));
    cursor = page.nextCursor;
  } while (cursor);
  // The newest first: cancelled, crashed, failed, and three that were done.
  assert.deepEqual(seen.slice(0, 6), ['cancelled', 'failed', 'failed', 'completed', 'completed', 'completed']);
  await assert.rejects(tasks.getTask('nothing'), (error) => error.code === -32602);
  await assert.rejects(tasks.listTasks('nothing'), (error) => error.code === -32602);
});
await transport.terminateSession?.();
await client.close();
process.exit(0);
