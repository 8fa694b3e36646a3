// node ts-ext.mjs URL TOOL ARGUMENTS-JSON: the TypeScript client with ext-tasks, negotiating the modern era, calls a
// tool, follows the task to its end and prints one JSON line of what it saw. Fails when the call was no task.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { createTaskSessionFromClient, resultFromTaskOutcome } from '@modelcontextprotocol/ext-tasks/client';

const VERSION = '2026-07-28';
const [url, tool, args = '{}'] = process.argv.slice(2);
const clientInfo = { name: 'raincheck-interop-ts', version: '0' };
const clientCapabilities = { elicitation: {} };

// The SDK's client refuses resultType "task", so ext-tasks wants its host to bring a dispatcher for the raw wire.
let next = 0;
async function rawDispatch(request, options = {}) {
  const id = `raw-${next++}`;
  const headers = {
    'content-type': 'application/json', accept: 'application/json, text/event-stream',
    'mcp-protocol-version': VERSION, 'mcp-method': request.method,
    ...(request.method === 'tools/call' ? { 'mcp-name': request.params.name } : {}), ...options.context?.headers
  };
  const res = await fetch(url, { method: 'POST', headers, body: JSON.stringify({ jsonrpc: '2.0', id, ...request }), signal: options.signal });
  const body = await res.text();
  const message = res.headers.get('content-type')?.includes('event-stream')
    ? body.split(/\r?\n/).filter((l) => l.startsWith('data:') && l.length > 6).map((l) => JSON.parse(l.slice(5))).find((m) => m.id === id)
    : JSON.parse(body);
  return message.error ? { kind: 'error', error: message.error } : { kind: 'result', result: message.result };
}

const client = new Client(clientInfo, { capabilities: clientCapabilities, versionNegotiation: { mode: 'auto' } });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
if (client.getProtocolEra() !== 'modern') throw new Error(`the client negotiated the ${client.getProtocolEra()} era`);

const session = createTaskSessionFromClient(client, {
  endpointId: 'interop', rawDispatch, v2RequestFraming: { protocolVersion: VERSION, clientInfo, clientCapabilities }
});
const execution = await session.callTool(tool, JSON.parse(args), {});
const taskId = execution.handle?.taskId;
if (!taskId) throw new Error(`the call was no task but ${execution.kind}`);

const statuses = [];
const { outcome } = await execution.settle({ onEvent: (e) => { if (e.type === 'task') statuses.push(e.task.status); } });
if (statuses.length === 0) throw new Error('no task event was seen');
const result = resultFromTaskOutcome(outcome);
console.log(JSON.stringify({ taskId, statuses, text: result.content?.[0]?.text, isError: Boolean(result.isError) }));
await session.close();
await client.close();
process.exit(0);
