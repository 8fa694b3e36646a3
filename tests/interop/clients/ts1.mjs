// node ts1.mjs TARGET JOBS: the client of the TypeScript SDK v1. TARGET is a URL, or a command as a JSON list.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CreateMessageRequestSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { eachJob, elicitation, sampling, words } from './answers.mjs';

const [target, jobs] = process.argv.slice(2);
const transport = () => {
  if (!target.startsWith('[')) return new StreamableHTTPClientTransport(new URL(target));
  const [command, ...args] = JSON.parse(target);
  return new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' });
};

const client = new Client({ name: 'raincheck-interop-ts1', version: '0' }, { capabilities: { elicitation: {}, sampling: {} } });
client.setRequestHandler(ElicitRequestSchema, (request) => elicitation(request.params));
client.setRequestHandler(CreateMessageRequestSchema, () => sampling());
await client.connect(transport());
await eachJob(JSON.parse(jobs), async (job) => words(await client.callTool({ name: job.tool, arguments: job.arguments })));
if (!target.startsWith('[')) await client.transport.terminateSession();
await client.close();
