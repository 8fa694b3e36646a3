// node ts2.mjs TARGET JOBS legacy|auto|tasks: the TypeScript client 2.4, as it is (it opens with `initialize`), with its
// modern mode, or with that and ext-tasks. TARGET is a URL, or a command as a JSON list.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { createTaskSessionFromClient, resultFromTaskOutcome } from '@modelcontextprotocol/ext-tasks/client';
import { eachJob, elicitation, sampling, words } from './answers.mjs';

const VERSION = '2026-07-28';
const [target, jobs, mode] = process.argv.slice(2);
const stdio = target.startsWith('[');
const clientInfo = { name: `raincheck-interop-ts2-${mode}`, version: '0' };
const clientCapabilities = { elicitation: {}, sampling: {} };

const transport = () => {
  if (!stdio) return new StreamableHTTPClientTransport(new URL(target));
  const [command, ...args] = JSON.parse(target);
  return new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' });
};

// The SDK's client refuses resultType "task", so ext-tasks wants its host to bring a dispatcher for the raw wire.
let next = 0;
async function overHttp(id, request, options) {
  const headers = {
    'content-type': 'application/json', accept: 'application/json, text/event-stream',
    'mcp-protocol-version': VERSION, 'mcp-method': request.method,
    ...(request.method === 'tools/call' ? { 'mcp-name': request.params.name } : {}), ...options.context?.headers
  };
  const res = await fetch(target, { method: 'POST', headers, body: JSON.stringify({ jsonrpc: '2.0', id, ...request }), signal: options.signal });
  const body = await res.text();
  return res.headers.get('content-type')?.includes('event-stream')
    ? body.split(/\r?\n/).filter((l) => l.startsWith('data:') && l.length > 6).map((l) => JSON.parse(l.slice(5))).find((m) => m.id === id)
    : JSON.parse(body);
}

const waiting = new Map();
function listenToRawAnswers() {
  const pass = client.transport.onmessage;
  client.transport.onmessage = (message, extra) => (waiting.has(message.id) && !message.method ? waiting.get(message.id)(message) : pass(message, extra));
}
async function overStdio(id, request) {
  const answer = new Promise((resolve) => waiting.set(id, resolve));
  await client.transport.send({ jsonrpc: '2.0', id, ...request });
  return answer.finally(() => waiting.delete(id));
}

async function rawDispatch(request, options = {}) {
  const message = await (stdio ? overStdio : overHttp)(`raw-${next++}`, request, options);
  return message.error ? { kind: 'error', error: message.error } : { kind: 'result', result: message.result };
}

const client = new Client(clientInfo, {
  capabilities: clientCapabilities, ...(mode === 'legacy' ? {} : { versionNegotiation: { mode: 'auto' } })
});
client.setRequestHandler('elicitation/create', (request) => elicitation(request.params));
client.setRequestHandler('sampling/createMessage', () => sampling());
await client.connect(transport());

let call = async (job) => words(await client.callTool({ name: job.tool, arguments: job.arguments }));
let session;
if (mode === 'tasks') {
  if (stdio) listenToRawAnswers();
  session = createTaskSessionFromClient(client, {
    endpointId: 'interop', rawDispatch, v2RequestFraming: { protocolVersion: VERSION, clientInfo, clientCapabilities },
    onInputRequest: (request) => (request.kind === 'elicitation' ? elicitation(request.params) : sampling())
  });
  call = async (job) => {
    const execution = await session.callTool(job.tool, job.arguments, {});
    const statuses = [];
    const { outcome } = await execution.settle({ onEvent: (e) => { if (e.type === 'task' && statuses.at(-1) !== e.task.status) statuses.push(e.task.status); } });
    const seen = { taskId: execution.handle?.taskId, statuses };
    if (outcome.status === 'failed') {
      const cause = outcome.error?.cause ?? outcome.error;
      return { ...seen, error: { code: outcome.error?.code ?? cause?.code, message: String(outcome.error?.message ?? cause?.message) } };
    }
    return { ...seen, ...words(resultFromTaskOutcome(outcome)) };
  };
}
await eachJob(JSON.parse(jobs), call);
await session?.close();
if (mode === 'legacy' && !stdio) await client.transport.terminateSession();
await client.close();
process.exit(0); // ext-tasks keeps a timer
