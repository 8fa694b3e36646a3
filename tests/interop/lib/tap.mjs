// A recording HTTP proxy on a free loopback port: bytes pass as they come, and every JSON-RPC exchange is noted,
// so that what a client did is judged by the wire and not by what the client says.
import http from 'node:http';

function parse(text) {
  try { return JSON.parse(text); } catch { return undefined; }
}

/** The JSON-RPC messages of a response body, plain JSON or an SSE stream. */
function messages(contentType, body) {
  if (!contentType.includes('text/event-stream')) return [parse(body)].filter(Boolean);
  return body.split(/\r\n\r\n|\n\n|\r\r/)
    .map((event) => event.split(/\r\n|\n|\r/).filter((l) => l.startsWith('data:')).map((l) => l.slice(5)).join('\n'))
    .map(parse).filter(Boolean);
}

/** Starts the tap: `{ url, exchanges, close }`. */
export async function startTap(target) {
  const to = new URL(target);
  const exchanges = [];
  const server = http.createServer((req, res) => {
    const began = Date.now();
    const asked = [];
    const got = [];
    const forward = http.request(
      { host: to.hostname, port: to.port, path: req.url, method: req.method, headers: { ...req.headers, host: to.host } },
      (answer) => {
        res.writeHead(answer.statusCode, answer.rawHeaders);
        res.flushHeaders();
        answer.on('data', (chunk) => { got.push(chunk); res.write(chunk); });
        answer.on('end', () => res.end());
        answer.on('error', () => res.destroy());
        answer.on('close', () => {
          const request = parse(Buffer.concat(asked).toString());
          const heard = messages(answer.headers['content-type'] ?? '', Buffer.concat(got).toString());
          const reply = heard.find((m) => m.id === request?.id && ('result' in m || 'error' in m)) ?? heard.at(-1);
          exchanges.push({
            http: req.method, method: request?.method, params: request?.params, status: answer.statusCode,
            result: reply?.result, error: reply?.error, ms: Date.now() - began
          });
        });
      }
    );
    forward.on('error', () => res.destroy());
    res.on('close', () => forward.destroy());
    req.on('data', (chunk) => asked.push(chunk));
    req.pipe(forward);
  });
  await new Promise((resolve, reject) => server.on('error', reject).listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}${to.pathname}`,
    exchanges,
    close: () => { server.closeAllConnections(); server.close(); }
  };
}
