// node net.mjs port                    a port that is free now
// node net.mjs wait-tcp PORT PID       until something listens there
// node net.mjs wait-mcp URL PID        until server/discover is answered with a result
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

let last = 'nothing answered';
async function discovers(url) {
  const meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': { name: 'raincheck-interop', version: '0' },
    'io.modelcontextprotocol/clientCapabilities': {}
  };
  try {
    const res = await fetch(url, {
      method: 'POST', signal: AbortSignal.timeout(5000),
      headers: {
        'content-type': 'application/json', accept: 'application/json, text/event-stream',
        'mcp-protocol-version': '2026-07-28', 'mcp-method': 'server/discover'
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'server/discover', params: { _meta: meta } })
    });
    const text = await res.text();
    last = `HTTP ${res.status} ${text.slice(0, 300)}`;
    return res.ok && text.includes('"supportedVersions"');
  } catch (error) {
    last = String(error.cause ?? error);
    return false;
  }
}

function alive(pid) {
  try { process.kill(pid, 0); return true; } catch { return false; }
}

const [command, what, pid] = process.argv.slice(2);
if (command === 'port') {
  console.log(await freePort());
} else {
  const ready = { 'wait-tcp': () => listens(Number(what)), 'wait-mcp': () => discovers(what) }[command];
  const until = Date.now() + LIMIT_MS;
  while (!(await ready())) {
    if (!alive(Number(pid))) { console.error(`process ${pid} ended before ${what} was ready`); process.exit(1); }
    if (Date.now() > until) { console.error(`${what} was not ready after ${LIMIT_MS / 1000} s: ${last}`); process.exit(1); }
    await pause();
  }
}
