// Judges one job of a client by what passed on the wire (see tap.mjs) and by what the client says it got.

const show = (value, room = 240) => (JSON.stringify(value) ?? String(value)).slice(0, room);
const words = (result) => (result?.content ?? []).map((c) => c.text ?? '').join(' ');
const QUESTIONS = { 'elicitation/create': 'elicitation', 'sampling/createMessage': 'sampling', 'roots/list': 'roots' };
const kinds = (requests) => Object.values(requests ?? {}).map((r) => QUESTIONS[r.method] ?? r.method);

/** Requests of the client, each with its answer: the one in its own exchange, or the next one with its id. */
function exchanges(wire, wanted) {
  const found = [];
  wire.forEach((entry, at) => {
    const { message } = entry;
    if (entry.from !== 'client' || !message?.method || !wanted(message)) return;
    const later = wire.slice(at + 1).filter((e) => e.from === 'server' && e.message && e.message.id === message.id && !e.message.method);
    const answer = (later.find((e) => e.on === entry.on) ?? later[0])?.message;
    found.push({ at, params: message.params ?? {}, answer, result: answer?.result, error: answer?.error });
  });
  return found;
}

const rounds = (wire, job) => exchanges(wire, (m) => m.method === 'tools/call' && m.params?.name === job.tool);

/** How the call went: `{ how, result, error, asked, wrong }`. */
function follow(wire, job) {
  const calls = rounds(wire, job);
  const wrong = [];
  const fresh = calls.filter((c) => c.params.requestState === undefined);
  if (fresh.length !== 1) wrong.push(`the tool was called ${fresh.length} times on the wire`);
  const asked = calls.flatMap((c) => (c.result?.resultType === 'input_required' ? kinds(c.result.inputRequests) : []));
  let how = asked.length ? 'rounds' : 'held';
  const last = calls.at(-1);
  let { result, error } = last ?? {};
  if (result?.resultType === 'task') {
    how = how === 'rounds' ? 'rounds, then task' : 'task';
    ({ result, error } = followTask(wire, result, asked, wrong));
  } else if (last && !last.answer) {
    wrong.push('tools/call was never answered');
  }
  return { how, result, error, asked, wrong };
}

function followTask(wire, created, asked, wrong) {
  const of = (method) => exchanges(wire, (m) => m.method === method && m.params?.taskId === created.taskId);
  const polls = of('tasks/get');
  const refused = polls.find((p) => p.answer && (p.error || p.result?.resultType !== 'complete' || p.result.taskId !== created.taskId));
  if (refused) wrong.push(`a tasks/get was answered with ${show(refused.error ?? refused.result)}`);
  const keys = new Map(); // a key is one question, however often it is shown
  for (const poll of polls) for (const [key, question] of Object.entries(poll.result?.inputRequests ?? {})) keys.set(key, question);
  for (const [key, question] of Object.entries(created.inputRequests ?? {})) keys.set(key, question);
  asked.push(...[...keys.values()].map((q) => QUESTIONS[q.method] ?? q.method));
  for (const update of of('tasks/update')) if (update.error) wrong.push(`tasks/update was answered with ${show(update.error)}`);
  const end = polls.findLast((p) => p.result)?.result;
  if (!['completed', 'failed'].includes(end?.status)) wrong.push(`the last of ${polls.length} polls says ${show(end?.status)}`);
  if (end?.status === 'completed' && end.result?.resultType !== 'complete') wrong.push(`the task's result has resultType ${show(end.result?.resultType)}`);
  return { result: end?.result, error: end?.error };
}

/** Questions that the server put as requests of its own between this call and the next. */
function requestsOfServer(wire, job) {
  const at = rounds(wire, job)[0]?.at ?? wire.length;
  const next = wire.findIndex((e, i) => i > at && e.from === 'client' && e.message?.method === 'tools/call');
  return wire.slice(at, next < 0 ? undefined : next)
    .filter((e) => e.from === 'server' && e.message?.method && e.message.id !== undefined)
    .map((e) => QUESTIONS[e.message.method] ?? e.message.method);
}

/** How the call may go. A quick call is a task too if its server is only started by it. */
function ways(era, job) {
  if (era === 'legacy') return ['held'];
  if (era === 'modern') return [job.asks ? 'rounds' : 'held'];
  if (job.first) return ['rounds, then task'];
  return job.asks || job.slow ? ['task'] : ['held', 'task'];
}

/** `{ wrong, seen }` of a job whose client said `said`; `unable` is why this client cannot do it, if so. */
export function judge(wire, era, job, said, unable) {
  const { how, result, error, asked, wrong } = follow(wire, job);
  if (era === 'legacy') asked.push(...requestsOfServer(wire, job));
  if (!said) return { wrong: ['the client said nothing of it'], seen: how };
  const ended = said.error ? 'error' : said.isError ? 'isError' : 'ok';
  if (unable) {
    if (ended === 'ok' && job.text.test(said.text)) wrong.push(`the client can do it after all, though the table says: ${unable}`);
    if (said.asked.length) wrong.push(`the client was asked ${said.asked}`);
    // It may not even call what it does not see in the list, and may leave a task that asks.
    return { wrong: wrong.filter((w) => !/^the last of|called 0 times/.test(w)), seen: `cannot: ${unable}; ended as ${ended}` };
  }
  const expected = ways(era, job);
  if (!expected.includes(how)) return { wrong: [...wrong, `the call went as "${how}" instead of "${expected.join('" or "')}": ${show(result ?? error)}; the client got ${show(said)}`] };
  const wanted = job.asks ?? [];
  // server-everything asks for roots a moment after it has started, of nobody in particular: over stdio the question is
  // put to whatever call is running then.
  const ofTool = asked.filter((kind) => kind !== 'roots' || wanted.includes(kind));
  if (`${ofTool}` !== `${wanted}`) wrong.push(`the wire has the questions [${asked}] instead of [${wanted}]`);
  if (`${said.asked}` !== `${wanted}`) wrong.push(`the client was asked [${said.asked}] instead of [${wanted}]`);
  if (job.fails === 'error') {
    if (!job.text.test(error?.message ?? '')) wrong.push(`no such error on the wire: ${show(error ?? result)}`);
    if (ended === 'ok' || !job.text.test(said.error?.message ?? said.text)) wrong.push(`the client got ${show(said)}`);
  } else {
    if (!job.text.test(words(result))) wrong.push(`the result on the wire is ${show(result ?? error)}`);
    if (Boolean(result?.isError) !== (job.fails === 'result')) wrong.push(`isError is ${show(result?.isError)} on the wire`);
    if (!job.text.test(said.text ?? '') || said.error) wrong.push(`the client got ${show(said)}`);
    if (Boolean(said.isError) !== (job.fails === 'result')) wrong.push(`the client says isError: ${said.isError}`);
  }
  return { wrong, seen: `${how}${asked.length ? ` (${asked})` : ''} ${said.ms} ms` };
}

/** What is wrong with the connection as a whole. */
export function judgeEra(wire, era) {
  const wrong = [];
  const has = (method) => wire.some((e) => e.from === 'client' && e.message?.method === method);
  if (era === 'legacy' ? !has('initialize') : has('initialize')) wrong.push(era === 'legacy' ? 'the client sent no initialize' : 'the client fell back to initialize');
  for (const e of wire.filter((x) => x.junk)) wrong.push(`not JSON on stdout: ${show(e.junk)}`);
  return wrong;
}
