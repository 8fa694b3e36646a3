// node net.mjs port                    a port that is free now
// node net.mjs wait-tcp PORT PID       until something listens there
// node net.mjs warm URL                lets Raincheck start what it needs behind URL
// Waiting ends with an error after 30 s, and at once when process PID is gone.
import net from 'node:net';

const LIMIT_MS = 30_000;
const PAUSE_MS = 50;
const pause = () => new Promise((r) => setTimeout(r, PAUSE_MS));

function freePort() {
  return new Promise((resolve, reject) => {
    const s = net.createServer().on('error', reject).listen(0, '127.0.0.1', () => {
      const { port } = s.address();
      s.close(() => resolve(port));
    });
  });
}

function listens(port) {
  return new Promise((resolve) => {
    const s = net.connect(port, '127.0.0.1');
    s.on('connect', () => { s.destroy(); resolve(true); }).on('error', () => resolve(false));
  });
}

/** One request of 2026-07-28. */
async function post(url, method, params, clientCapabilities) {
  const meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': { name: 'raincheck-interop', version: '0' },
    'io.modelcontextprotocol/clientCapabilities': clientCapabilities
  };
  const res = await fetch(url, {
    method: 'POST', signal: AbortSignal.timeout(LIMIT_MS),
    headers: {
      'content-type': 'application/json', accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2026-07-28', 'mcp-method': method, ...(params.name ? { 'mcp-name': params.name } : {})
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { ...params, _meta: meta } })
  });
  return res.text();
}

/** A server over stdio is started by the first call of each kind of client; what is measured comes after that. */
async function warm(url) {
  const [elicitation, sampling, roots] = [{}, {}, {}];
  const kinds = [{}, { elicitation }, { sampling }, { roots }, { elicitation, sampling }, { elicitation, sampling, roots }];
  await post(url, 'server/discover', {}, {});
  for (const kind of kinds) await post(url, 'tools/call', { name: 'greet', arguments: { name: 'you' } }, kind);
}

function alive(pid) {
  try { process.kill(pid, 0); return true; } catch { return false; }
}

const [command, what, pid] = process.argv.slice(2);
if (command === 'port') {
  console.log(await freePort());
} else if (command === 'warm') {
  await warm(what);
} else {
  const until = Date.now() + LIMIT_MS;
  while (!(await listens(Number(what)))) {
    if (!alive(Number(pid))) { console.error(`process ${pid} ended before ${what} was ready`); process.exit(1); }
    if (Date.now() > until) { console.error(`${what} was not ready after ${LIMIT_MS / 1000} s`); process.exit(1); }
    await pause();
  }
}
