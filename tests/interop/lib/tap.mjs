// A recording HTTP proxy on a free loopback port: bytes pass as they come, and every JSON-RPC message is noted in the
// order in which it passed, so that what a client did is judged by the wire and not by what the client says.
import http from 'node:http';

function parse(text) {
  try { return JSON.parse(text); } catch { return undefined; }
}

/** Splits an SSE stream into its messages, as the chunks come. */
class Events {
  #rest = '';
  add(chunk) {
    const parts = (this.#rest + chunk).split(/\r\n\r\n|\n\n|\r\r/);
    this.#rest = parts.pop();
    return parts
      .map((event) => event.split(/\r\n|\n|\r/).filter((l) => l.startsWith('data:')).map((l) => l.slice(5)).join('\n'))
      .map(parse).filter(Boolean);
  }
}

/**
 * Starts the tap: `{ url, wire, close }`. Each entry of `wire` has `from` ("client" or "server"), `on` (the number of the
 * HTTP exchange), and a `message`; an answer's head is noted without one, with the method and the status.
 */
export async function startTap(target) {
  const to = new URL(target);
  const wire = [];
  let exchanges = 0;
  const server = http.createServer((req, res) => {
    const on = exchanges++;
    const note = (from, message) => [message].flat().forEach((m) => wire.push({ from, on, message: m }));
    const asked = [];
    const forward = http.request(
      { host: to.hostname, port: to.port, path: req.url, method: req.method, headers: { ...req.headers, host: to.host } },
      (answer) => {
        wire.push({ from: 'server', on, http: req.method, status: answer.statusCode });
        res.writeHead(answer.statusCode, answer.rawHeaders);
        res.flushHeaders();
        const events = (answer.headers['content-type'] ?? '').includes('text/event-stream') ? new Events() : undefined;
        const body = [];
        answer.on('data', (chunk) => {
          if (events) events.add(chunk.toString()).forEach((m) => note('server', m)); else body.push(chunk);
          res.write(chunk);
        });
        answer.on('end', () => {
          const message = parse(Buffer.concat(body).toString());
          if (message) note('server', message);
          res.end();
        });
        answer.on('error', () => res.destroy());
      }
    );
    forward.on('error', () => res.destroy());
    res.on('close', () => forward.destroy());
    req.on('data', (chunk) => asked.push(chunk));
    req.on('end', () => {
      const message = parse(Buffer.concat(asked).toString());
      if (message) note('client', message);
    });
    req.pipe(forward);
  });
  await new Promise((resolve, reject) => server.on('error', reject).listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}${to.pathname}`,
    wire,
    close: () => { server.closeAllConnections(); server.close(); }
  };
}
