// What an agent does that knows nothing of Raincheck: what the text of a result tells it, and no more.

export const text = (result) => (result.content ?? []).map((c) => c.text ?? '').join('\n');

/** The next call that a text asks for; undefined if it asks for none, so that it is the result. */
export function next(said, goal) {
  const asks = said.match(/^To answer, call `([^`]+)` with \{"job":"([^"]+)","question":"([^"]+)"/m);
  if (asks) {
    const [, name, job, question] = asks;
    const schema = said.match(/JSON schema: (\{.*\})$/m);
    return { name, arguments: { job, question, action: 'accept', ...(schema ? { content: fill(JSON.parse(schema[1])) } : {}) } };
  }
  const stop = said.match(/To stop the job, call `([^`]+)`/);
  const first = said.match(/call `([^`]+)` with (\{"job":"[^"]+"\})/);
  const again = said.match(/^Job (\S+) .*Call `([^`]+)` with the same job again/s);
  const given = said.match(/was given to job ([^\s.]+)\. .*`([^`]+)` (?:waits for its result|shows them)/s);
  const job = first ? JSON.parse(first[2]).job : (again ?? given)?.[1];
  if (!job) return undefined;
  if (goal === 'cancel' && stop) return { name: stop[1], arguments: { job } };
  return { name: first ? first[1] : (again ?? given)[2], arguments: { job } };
}

/** Calls a tool, and then whatever the results say: the last result, and the names of all calls. */
export async function pursue(call, tool, args, goal) {
  const calls = [tool];
  let result = await call(tool, args);
  for (let step = next(text(result), goal); step; step = next(text(result), goal)) {
    if (calls.length > 40) throw new Error(`it never ends: ${text(result)}`);
    calls.push(step.name);
    result = await call(step.name, step.arguments);
  }
  return { text: text(result), isError: Boolean(result.isError), calls };
}

function fill(schema) {
  const value = (p) => p.default ?? p.enum?.[0] ?? p.oneOf?.[0]?.const ?? { boolean: true, integer: 1, number: 1, array: [] }[p.type] ?? 'Ann';
  return Object.fromEntries((schema.required ?? []).map((name) => [name, value(schema.properties[name])]));
}
