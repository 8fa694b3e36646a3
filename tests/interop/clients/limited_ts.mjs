// node limited_ts.mjs TARGET JOB ts1|ts2-legacy|ts2-modern: a client of the TypeScript SDK that gives each request up after
// JOB.limit ms. JOB: { tool, arguments, limit, progress, goal }. TARGET is a URL, or a command as a JSON list. The user whom
// it could ask is away.
import { pursue } from './agent.mjs';

const [target, given, kind] = process.argv.slice(2);
const job = JSON.parse(given);
const info = { name: `raincheck-interop-${kind}`, version: '0' };
const away = () => new Promise(() => {});

async function connected() {
  const stdio = target.startsWith('[');
  const [command, ...args] = stdio ? JSON.parse(target) : [];
  const program = { command, args, env: process.env, stderr: 'inherit' };
  if (kind === 'ts1') {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js');
    const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
    const { ElicitRequestSchema } = await import('@modelcontextprotocol/sdk/types.js');
    const client = new Client(info, { capabilities: { elicitation: {} } });
    client.setRequestHandler(ElicitRequestSchema, away);
    await client.connect(stdio ? new StdioClientTransport(program) : new StreamableHTTPClientTransport(new URL(target)));
    return client;
  }
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
  const client = new Client(info, { capabilities: {}, ...(kind === 'ts2-modern' ? { versionNegotiation: { mode: 'auto' } } : {}) });
  await client.connect(stdio ? new StdioClientTransport(program) : new StreamableHTTPClientTransport(new URL(target)));
  return client;
}

const began = Date.now();
let said;
try {
  const client = await connected();
  const options = { timeout: job.limit, ...(job.progress ? { resetTimeoutOnProgress: true, onprogress: () => {} } : {}) };
  const call = (name, args) =>
    kind === 'ts1' ? client.callTool({ name, arguments: args }, undefined, options) : client.callTool({ name, arguments: args }, options);
  const listed = (await client.listTools()).tools.map((tool) => tool.name);
  said = { listed, ...(await pursue(call, job.tool, job.arguments, job.goal)) };
  await client.close();
} catch (error) {
  said = { error: { code: error?.code, message: String(error?.message ?? error).slice(0, 400) } };
}
console.log(JSON.stringify({ ...said, ms: Date.now() - began }));
process.exit(0);
