// node ts2_server.mjs PORT | --stdio: a server of the TypeScript SDK 2 that speaks 2026-07-28 only: no `initialize`, and
// what it asks is a result that the client answers in a retry.
import { createServer } from 'node:http';
import { Readable } from 'node:stream';
import { McpServer, acceptedContent, createMcpHandler, inputRequired } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';

const say = (text) => ({ content: [{ type: 'text', text }] });
const pause = (seconds, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, seconds * 1000);
  signal.addEventListener('abort', () => { clearTimeout(timer); reject(signal.reason); });
});

function make() {
  const server = new McpServer({ name: 'ts2', version: '1.0.0' }, { capabilities: { tools: {} } });
  server.registerTool('greet', { inputSchema: z.object({ name: z.string() }) }, ({ name }) => say(`Hello, ${name}!`));
  server.registerTool('slow', { inputSchema: z.object({ seconds: z.number() }) }, async ({ seconds }, ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    if (progressToken !== undefined) await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress: 1, total: 2 } });
    await pause(seconds, ctx.mcpReq.signal);
    return say(`slept ${seconds}`);
  });
  server.registerTool('boom', {}, () => { throw new Error('boom'); });
  const name = z.object({ name: z.string() });
  server.registerTool('ask', {}, (ctx) => {
    const answer = acceptedContent(ctx.mcpReq.inputResponses, 'who', name);
    if (!answer) return inputRequired({ inputRequests: { who: inputRequired.elicit({ message: 'Your name?', requestedSchema: name }) } });
    return say(`accept ${answer.name}`);
  });
  return server;
}

const where = process.argv[2];
if (where === '--stdio') {
  serveStdio(make, { legacy: 'reject' });
} else {
  const handler = createMcpHandler(make, { legacy: 'reject' });
  createServer(async (req, res) => {
    const left = new AbortController();
    res.on('close', () => left.abort());
    const body = ['GET', 'HEAD', 'DELETE'].includes(req.method) ? undefined : Readable.toWeb(req);
    const request = new Request(`http://127.0.0.1:${where}${req.url}`, { method: req.method, headers: req.headers, body, duplex: 'half', signal: left.signal });
    const response = await handler.fetch(request);
    res.writeHead(response.status, Object.fromEntries(response.headers));
    if (response.body) Readable.fromWeb(response.body).on('error', () => res.destroy()).pipe(res);
    else res.end();
  }).listen(Number(where), '127.0.0.1');
}
