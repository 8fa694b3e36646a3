// Who is held against what, and what must come of it.

const RAIN = /Rain is likely/;

function modern() {
  return [
    { name: 'plain', tool: 'greet', arguments: { name: 'interop' }, text: /^Hello, interop!$/ },
    { name: 'slow', tool: 'slow', arguments: { seconds: 1.5 }, text: /^slept 1.5$/, slow: true },
    { name: 'failing', tool: 'boom', arguments: {}, text: /boom/, fails: 'result' },
    { name: 'asking', tool: 'ask', arguments: {}, text: /^accept Ann$/, asks: ['elicitation'] }
  ];
}

/** What each server is asked to do. `asks`: the questions that the tool puts. `text` is of the result, or of the error. */
export const servers = {
  fixture: [
    { name: 'plain', tool: 'greet', arguments: { name: 'interop' }, text: /^Hello, interop!$/ },
    { name: 'slow', tool: 'slow_compute', arguments: { seconds: 1.5, label: 'rain' }, text: /^Computed rain in 1.5s$/, slow: true },
    { name: 'failing', tool: 'failing_job', arguments: {}, text: /^The job failed$/, fails: 'result', slow: true },
    { name: 'crashing', tool: 'protocol_error_job', arguments: {}, text: /The worker crashed/, fails: 'error', slow: true },
    { name: 'asking', tool: 'confirm_delete', arguments: { filename: 'x' }, text: /^Deleted x$/, asks: ['elicitation'] },
    { name: 'asking twice', tool: 'multi_input', arguments: {}, text: /^Got Ann and Ann$/, asks: ['elicitation', 'elicitation'] },
    { name: 'asking first', tool: 'test_tool_with_task', arguments: { seconds: 3 }, text: /^Finished the job for Ann$/, asks: ['elicitation'], slow: true, first: true },
    { name: 'sampling', tool: 'test_sampling', arguments: { prompt: 'weather?' }, text: RAIN, asks: ['sampling'] }
  ],
  everything: [
    { name: 'plain', tool: 'echo', arguments: { message: 'interop' }, text: /^Echo: interop$/ },
    { name: 'slow', tool: 'trigger-long-running-operation', arguments: { duration: 2, steps: 2 }, text: /^Long running operation completed. Duration: 2 seconds, Steps: 2.$/, slow: true },
    { name: 'failing', tool: 'get-sum', arguments: { a: 'x', b: 1 }, text: /Input validation error/, fails: 'result' },
    { name: 'asking', tool: 'trigger-elicitation-request', arguments: {}, text: /User provided the requested information.*Name: Ann/s, asks: ['elicitation'] },
    { name: 'sampling', tool: 'trigger-sampling-request', arguments: { prompt: 'weather?', maxTokens: 10 }, text: RAIN, asks: ['sampling'] }
  ],
  python: [
    { name: 'plain', tool: 'quick', arguments: { x: 41 }, text: /^42$/ },
    { name: 'slow', tool: 'slow', arguments: { seconds: 2 }, text: /^slept 2.0$/, slow: true },
    { name: 'failing', tool: 'boom', arguments: {}, text: /boom/, fails: 'result' },
    { name: 'asking', tool: 'ask', arguments: {}, text: /^accept name='Ann'$/, asks: ['elicitation'] },
    { name: 'sampling', tool: 'sample', arguments: {}, text: RAIN, asks: ['sampling'] }
  ],
  // Servers of 2026-07-28: what they ask is a result, and the answer comes with a retry.
  ts2: modern(),
  py2server: modern(),
  // A server that has tasks itself, for the self-test.
  control: [
    { name: 'plain', tool: 'greet', arguments: { name: 'interop' }, text: /^Hello, interop!$/ },
    { name: 'slow', tool: 'slow_compute', arguments: { seconds: 1.5, label: 'rain' }, text: /^Computed rain in 1.5s$/, slow: true },
    { name: 'failing', tool: 'failing_job', arguments: {}, text: /^The job failed$/, fails: 'result', slow: true },
    { name: 'crashing', tool: 'protocol_error_job', arguments: {}, text: /The worker crashed/, fails: 'error', slow: true }
  ]
};

/**
 * The clients. `era`: "tasks" (2026-07-28 with the extension: slow calls and questions become tasks), "modern" (without
 * it: calls are held open, questions are multi round-trip results), "legacy" (`initialize`; questions are requests).
 * `cannot`: what a client is not able to do, and why; the harness holds that it ends with an error, unasked, and does not
 * hang. A reason that is no longer true fails.
 */
export const clients = {
  fastmcp: {
    era: 'tasks', python: 'python', program: 'fastmcp_client.py',
    cannot: { sampling: 'fastmcp-tasks 4.1.4 has no way to answer sampling in a task, and leaves the task' }
  },
  'ts-tasks': { era: 'tasks', program: 'ts2.mjs', mode: 'tasks' },
  inspector: {
    era: 'tasks', program: 'inspector.mjs', mode: 'modern',
    cannot: {
      asking: 'the CLI of Inspector declares no elicitation', 'asking twice': 'the same', 'asking first': 'the same',
      sampling: 'the CLI of Inspector declares no sampling'
    }
  },
  rmcp: { era: 'tasks', program: 'rmcp-client', mode: 'tasks' },
  py2: { era: 'modern', python: 'python', program: 'py2_client.py' },
  'ts-modern': { era: 'modern', program: 'ts2.mjs', mode: 'auto' },
  'ts-legacy': { era: 'legacy', program: 'ts2.mjs', mode: 'legacy' },
  'rmcp-legacy': { era: 'legacy', program: 'rmcp-client', mode: 'legacy' },
  ts1: { era: 'legacy', program: 'ts1.mjs' },
  py1: { era: 'legacy', python: 'python-v1', program: 'py1_client.py' }
};
