// What every JavaScript client here answers to a server's questions, and how it tells what it saw: one JSON line a job.

/** Fills in a form: each property that it must have, and those that have no default. */
function fill(schema) {
  const value = (property) => {
    if (property.default !== undefined) return property.default;
    if (property.type === 'boolean') return true;
    if (property.type === 'integer' || property.type === 'number') return property.minimum ?? 1;
    if (property.type === 'array') return [];
    return property.enum?.[0] ?? property.oneOf?.[0]?.const ?? 'Ann';
  };
  const wanted = schema?.required ?? [];
  return Object.fromEntries(Object.entries(schema?.properties ?? {}).filter(([k]) => wanted.includes(k)).map(([k, p]) => [k, value(p)]));
}

/** The questions that the job in hand was asked. */
export const asked = [];

export function elicitation(params) {
  asked.push('elicitation');
  return { action: 'accept', content: fill(params.requestedSchema) };
}

export function sampling() {
  asked.push('sampling');
  return { role: 'assistant', model: 'none', stopReason: 'endTurn', content: { type: 'text', text: 'Rain is likely' } };
}

export function say(line) {
  console.log(JSON.stringify(line));
}

/** The text of all blocks of a result. */
export function words(result) {
  return { text: (result.content ?? []).map((c) => c.text ?? '').join(' '), isError: Boolean(result.isError) };
}

/** Runs the jobs one after the other; `call(job)` gives what is told of one. */
export async function eachJob(jobs, call) {
  for (const job of jobs) {
    asked.length = 0;
    const began = Date.now();
    let seen;
    try {
      seen = await call(job);
    } catch (error) {
      seen = { error: { name: error?.constructor?.name, code: error?.code, message: String(error?.message ?? error).slice(0, 400) } };
    }
    say({ job: job.name, ...seen, asked: [...asked], ms: Date.now() - began });
  }
}
