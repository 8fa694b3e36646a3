// A deliberately old-fashioned MCP server: every tool is synchronous, input is
// asked for with server->client requests in the middle of a call, and nothing
// here knows about tasks, MRTR or the 2026-07-28 revision.
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import {
  CallToolRequestSchema, CompleteRequestSchema, CreateMessageResultSchema, ElicitResultSchema,
  ErrorCode, GetPromptRequestSchema, ListPromptsRequestSchema, ListResourcesRequestSchema,
  ListResourceTemplatesRequestSchema, ListRootsResultSchema, ListToolsRequestSchema, McpError,
  ReadResourceRequestSchema, SubscribeRequestSchema, UnsubscribeRequestSchema
} from '@modelcontextprotocol/sdk/types.js';
import { onePixelPng, silentWav } from './media.mjs';

const PNG = onePixelPng();
const WAV = silentWav();
const RESOURCE_NOT_FOUND = -32002; // what 2025-11-25 servers answer

const text = (t) => ({ content: [{ type: 'text', text: t }] });
const toolError = (t) => ({ ...text(t), isError: true });
const obj = (properties = {}, required = []) => ({ type: 'object', properties, ...(required.length ? { required } : {}) });
const str = (description, extra = {}) => ({ type: 'string', description, ...extra });

/** Sleep that rejects as soon as the caller cancels the request. */
function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(new Error('cancelled'));
    const t = setTimeout(() => { signal?.removeEventListener('abort', onAbort); resolve(); }, ms);
    const onAbort = () => { clearTimeout(t); reject(new Error('cancelled')); };
    signal?.addEventListener('abort', onAbort, { once: true });
  });
}

/** State shared by every session of this process. */
export function createWorld({ log = () => {}, keyHints = false, inputTimeoutMs = 600_000 } = {}) {
  return {
    log, keyHints, inputTimeoutMs,
    sessions: new Set(),
    dynamicTools: false,
    dynamicPrompts: false,
    stats: { started: {}, finished: {}, cancelled: {}, failed: {} },
    bump(kind, name) { this.stats[kind][name] = (this.stats[kind][name] ?? 0) + 1; }
  };
}

export function createFixtureServer(world) {
  const server = new Server(
    { name: 'legacy-fixture', version: '0.1.0', title: 'Legacy synchronous fixture' },
    {
      capabilities: {
        tools: { listChanged: true },
        prompts: { listChanged: true },
        resources: { subscribe: true, listChanged: true },
        completions: {},
        logging: {}
      },
      instructions: 'Synchronous 2025-11-25 fixture. Nothing here knows about tasks.'
    }
  );
  const subscriptions = new Set();
  world.sessions.add(server);
  server.onclose = () => world.sessions.delete(server);

  const clientCan = (cap) => Boolean(server.getClientCapabilities()?.[cap]);
  const hint = (key) => (world.keyHints ? { _meta: { 'legacy-fixture/inputKey': key } } : {});
  const opts = { timeout: world.inputTimeoutMs, resetTimeoutOnProgress: true };

  const elicit = (extra, key, message, requestedSchema) => {
    if (!clientCan('elicitation')) throw new Error('Client does not support elicitation');
    return extra.sendRequest(
      { method: 'elicitation/create', params: { mode: 'form', message, requestedSchema, ...hint(key) } },
      ElicitResultSchema, { ...opts, signal: extra.signal });
  };
  const sample = (extra, key, prompt) => {
    if (!clientCan('sampling')) throw new Error('Client does not support sampling');
    return extra.sendRequest(
      { method: 'sampling/createMessage', params: { messages: [{ role: 'user', content: { type: 'text', text: prompt } }], maxTokens: 100, ...hint(key) } },
      CreateMessageResultSchema, { ...opts, signal: extra.signal });
  };
  const roots = (extra, key) => {
    if (!clientCan('roots')) throw new Error('Client does not support roots');
    return extra.sendRequest({ method: 'roots/list', params: hint(key) }, ListRootsResultSchema, { ...opts, signal: extra.signal });
  };
  const progress = async (extra, value, total, message) => {
    const progressToken = extra._meta?.progressToken;
    if (progressToken === undefined) return;
    await extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress: value, total, ...(message ? { message } : {}) } });
  };
  const logMessage = (extra, level, data) =>
    extra.sendNotification({ method: 'notifications/message', params: { level, logger: 'legacy-fixture', data } });

  const nameSchema = obj({ name: str('Your name') }, ['name']);
  const tools = [];
  const tool = (name, description, inputSchema, run, more = {}) => tools.push({ name, description, inputSchema, run, more });

  // ── plain content ─────────────────────────────────────────────────────────
  tool('test_simple_text', 'Returns one text block', obj(), () => text('This is a simple text response for testing.'));
  tool('test_image_content', 'Returns one image block', obj(), () => ({ content: [{ type: 'image', data: PNG, mimeType: 'image/png' }] }));
  tool('test_audio_content', 'Returns one audio block', obj(), () => ({ content: [{ type: 'audio', data: WAV, mimeType: 'audio/wav' }] }));
  tool('test_embedded_resource', 'Returns one embedded resource', obj(), () => ({
    content: [{ type: 'resource', resource: { uri: 'test://embedded-resource', mimeType: 'text/plain', text: 'This is an embedded resource content.' } }]
  }));
  tool('test_multiple_content_types', 'Returns text, image and resource blocks', obj(), () => ({
    content: [
      { type: 'text', text: 'Multiple content types test:' },
      { type: 'image', data: PNG, mimeType: 'image/png' },
      { type: 'resource', resource: { uri: 'test://mixed-content-resource', mimeType: 'application/json', text: JSON.stringify({ test: 'data', value: 123 }) } }
    ]
  }));
  tool('test_error_handling', 'Always reports a tool error', obj(), () => toolError('This tool intentionally returns an error for testing'));
  tool('structured_sum', 'Adds two numbers, with structured output', obj({ a: { type: 'number' }, b: { type: 'number' } }, ['a', 'b']),
    (args) => ({ ...text(String(args.a + args.b)), structuredContent: { sum: args.a + args.b } }),
    { outputSchema: obj({ sum: { type: 'number' } }, ['sum']), annotations: { readOnlyHint: true } });

  // ── notifications during a call ───────────────────────────────────────────
  const logged = async (_args, extra) => {
    await logMessage(extra, 'info', 'Tool execution started');
    await sleep(50, extra.signal);
    await logMessage(extra, 'info', 'Tool processing data');
    await sleep(50, extra.signal);
    await logMessage(extra, 'info', 'Tool execution completed');
    return text('Logged three messages');
  };
  tool('test_tool_with_logging', 'Sends three log messages while running', obj(), logged);
  tool('test_logging_tool', 'Sends log messages whatever the client asked for', obj(), logged);
  tool('test_tool_with_progress', 'Reports 0, 50 and 100 percent', obj(), async (_args, extra) => {
    for (const p of [0, 50, 100]) { await progress(extra, p, 100); if (p < 100) await sleep(50, extra.signal); }
    return text(`Progress reported for token ${String(extra._meta?.progressToken ?? '(none)')}`);
  });

  // ── server->client requests during a call ─────────────────────────────────
  tool('test_sampling', 'Asks the client to sample', obj({ prompt: str('Prompt to send') }, ['prompt']), async ({ prompt }, extra) => {
    const r = await sample(extra, 'sample', prompt);
    return text(`LLM response: ${r.content?.text ?? JSON.stringify(r.content)}`);
  });
  tool('test_elicitation', 'Asks the user for a name and an address', obj({ message: str('What to show the user') }, ['message']), async ({ message }, extra) => {
    const r = await elicit(extra, 'user_info', message,
      obj({ username: str("User's response"), email: str("User's email address") }, ['username', 'email']));
    return text(`User response: action=${r.action}, content=${JSON.stringify(r.content ?? {})}`);
  });
  tool('test_elicitation_sep1034_defaults', 'Elicits a form with defaults', obj(), async (_args, extra) => {
    const r = await elicit(extra, 'defaults', 'Please review and update the form', obj({
      name: str('Name', { default: 'John Doe' }),
      age: { type: 'integer', description: 'Age', default: 30 },
      score: { type: 'number', description: 'Score', default: 95.5 },
      status: { type: 'string', description: 'Status', enum: ['active', 'inactive', 'pending'], default: 'active' },
      verified: { type: 'boolean', description: 'Verified', default: true }
    }));
    return text(`Elicitation completed: action=${r.action}, content=${JSON.stringify(r.content ?? {})}`);
  });
  tool('test_elicitation_sep1330_enums', 'Elicits a form with every kind of enum', obj(), async (_args, extra) => {
    const plain = ['option1', 'option2', 'option3'];
    const titled = (word) => ['First', 'Second', 'Third'].map((t, i) => ({ const: `value${i + 1}`, title: `${t} ${word}` }));
    const r = await elicit(extra, 'enums', 'Please choose', obj({
      untitledSingle: { type: 'string', enum: plain },
      titledSingle: { type: 'string', oneOf: titled('Option') },
      legacyEnum: { type: 'string', enum: ['opt1', 'opt2', 'opt3'], enumNames: ['Option One', 'Option Two', 'Option Three'] },
      untitledMulti: { type: 'array', items: { type: 'string', enum: plain } },
      titledMulti: { type: 'array', items: { anyOf: titled('Choice') } }
    }));
    return text(`Elicitation completed: action=${r.action}, content=${JSON.stringify(r.content ?? {})}`);
  });
  tool('test_streaming_elicitation', 'Elicits in the middle of a streamed answer', obj(), async (_args, extra) => {
    await progress(extra, 1, 2);
    const r = await elicit(extra, 'confirm', 'Continue?', obj({ ok: { type: 'boolean' } }, ['ok']));
    return text(`Continued: ${r.action}`);
  });
  tool('test_missing_capability', 'Cannot work without client sampling', obj(), async (_args, extra) => {
    const r = await sample(extra, 'sample', 'ping');
    return text(`Sampled: ${r.content?.text ?? ''}`);
  });

  // ── what the task scenarios call ──────────────────────────────────────────
  tool('greet', 'Answers at once', obj({ name: str('Who to greet') }, ['name']), ({ name }) => text(`Hello, ${name}!`));
  tool('slow_compute', 'Works for some seconds, reporting progress', obj({ seconds: { type: 'number', minimum: 0 }, label: str('Echoed back') }, ['seconds']),
    async ({ seconds, label }, extra) => {
      const until = Date.now() + seconds * 1000;
      let step = 0;
      const steps = Math.max(1, Math.ceil(seconds));
      while (Date.now() < until) {
        await progress(extra, step++, steps, `step ${step} of ${steps}`);
        await sleep(Math.min(1000, Math.max(1, until - Date.now())), extra.signal);
      }
      return text(`Computed ${label ?? 'result'} in ${seconds}s`);
    });
  tool('failing_job', 'Fails with a tool error after a second', obj(), async (_args, extra) => {
    await sleep(1000, extra.signal);
    return toolError('The job failed');
  });
  tool('protocol_error_job', 'Fails with a JSON-RPC error', obj(), async (_args, extra) => {
    await sleep(1000, extra.signal);
    throw new McpError(ErrorCode.InternalError, 'The worker crashed', { worker: 7 });
  });
  tool('confirm_delete', 'Asks before deleting', obj({ filename: str('File to delete') }, ['filename']), async ({ filename }, extra) => {
    const r = await elicit(extra, 'confirm', `Really delete ${filename}?`, obj({ confirm: { type: 'boolean', description: 'Confirm' } }, ['confirm']));
    if (r.action !== 'accept' || !r.content?.confirm) return text(`Kept ${filename}`);
    await sleep(100, extra.signal);
    return text(`Deleted ${filename}`);
  });
  tool('multi_input', 'Asks two questions at the same time', obj(), async (_args, extra) => {
    const ask = (key, what) => elicit(extra, key, `Provide ${what}`, obj({ name: str(what), confirm: { type: 'boolean' } }, ['name']));
    const [a, b] = await Promise.all([ask('first', 'the first name'), ask('second', 'the second name')]);
    return text(`Got ${a.content?.name ?? a.action} and ${b.content?.name ?? b.action}`);
  });
  tool('test_tool_with_task', 'Asks for a name, then works for a while', obj({ seconds: { type: 'number' } }), async (args, extra) => {
    const r = await elicit(extra, 'user_name', 'What is your name?', nameSchema);
    await sleep((args.seconds ?? 1.5) * 1000, extra.signal);
    return text(`Finished the job for ${r.content?.name ?? r.action}`);
  });

  // ── what the input-required scenarios call ────────────────────────────────
  tool('test_input_required_result_elicitation', 'Asks for a name', obj(), async (_args, extra) => {
    const r = await elicit(extra, 'user_name', 'What is your name?', nameSchema);
    return text(`Hello, ${r.content?.name ?? r.action}!`);
  });
  tool('test_input_required_result_sampling', 'Asks the model for a capital', obj(), async (_args, extra) => {
    const r = await sample(extra, 'capital_question', 'What is the capital of France?');
    return text(`The model said: ${r.content?.text ?? ''}`);
  });
  tool('test_input_required_result_list_roots', 'Asks for the client roots', obj(), async (_args, extra) => {
    const r = await roots(extra, 'client_roots');
    return text(`Roots: ${r.roots.map((x) => x.uri).join(', ')}`);
  });
  tool('test_input_required_result_request_state', 'Asks for a confirmation', obj(), async (_args, extra) => {
    const r = await elicit(extra, 'confirm', 'Please confirm', obj({ ok: { type: 'boolean' } }, ['ok']));
    return text(`state-ok (${r.action})`);
  });
  tool('test_input_required_result_tampered_state', 'Asks for a confirmation', obj(), async (_args, extra) => {
    const r = await elicit(extra, 'confirm', 'Please confirm', obj({ ok: { type: 'boolean' } }, ['ok']));
    return text(`done (${r.action})`);
  });
  tool('test_input_required_result_multiple_inputs', 'Asks user, model and roots at the same time', obj(), async (_args, extra) => {
    const [u, m, r] = await Promise.all([
      elicit(extra, 'user_name', 'What is your name?', nameSchema),
      sample(extra, 'greeting', 'Generate a greeting'),
      roots(extra, 'client_roots')
    ]);
    return text(`${m.content?.text ?? ''} ${u.content?.name ?? u.action} (${r.roots.length} roots)`);
  });
  tool('test_input_required_result_multi_round', 'Asks two questions one after the other', obj(), async (_args, extra) => {
    const one = await elicit(extra, 'step1', 'Step 1: what is your name?', nameSchema);
    const two = await elicit(extra, 'step2', 'Step 2: what is your favourite colour?', obj({ color: str('Colour') }, ['color']));
    return text(`${one.content?.name ?? one.action} likes ${two.content?.color ?? two.action}`);
  });
  tool('test_input_required_result_capabilities', 'Asks only for what the client declared', obj(), async (_args, extra) => {
    const parts = [];
    if (clientCan('sampling')) parts.push(sample(extra, 'sample', 'Say something').then((r) => `sampled ${r.content?.text ?? ''}`));
    if (clientCan('elicitation')) parts.push(elicit(extra, 'user_name', 'What is your name?', nameSchema).then((r) => `elicited ${r.action}`));
    return text((await Promise.all(parts)).join('; ') || 'The client declared nothing');
  });

  // ── transport and schema curiosities ──────────────────────────────────────
  tool('test_reconnection', 'Drops its own stream in the middle of the call', obj(), async (_args, extra) => {
    await sleep(100, extra.signal);
    extra.closeSSEStream?.();
    await sleep(400, extra.signal);
    return text('Finished after the stream was closed');
  });
  tool('test_trigger_tool_change', 'Adds or removes a tool', obj(), async () => {
    world.dynamicTools = !world.dynamicTools;
    for (const s of world.sessions) await s.sendToolListChanged().catch(() => {});
    return text(`dynamic tool ${world.dynamicTools ? 'added' : 'removed'}`);
  });
  tool('test_trigger_prompt_change', 'Adds or removes a prompt', obj(), async () => {
    world.dynamicPrompts = !world.dynamicPrompts;
    for (const s of world.sessions) await s.sendPromptListChanged().catch(() => {});
    return text(`dynamic prompt ${world.dynamicPrompts ? 'added' : 'removed'}`);
  });
  tool('test_touch_resource', 'Announces that the watched resource changed', obj(), async () => {
    if (subscriptions.has('test://watched-resource')) await server.sendResourceUpdated({ uri: 'test://watched-resource' });
    return text('touched');
  });
  tool('json_schema_2020_12_tool', 'Has an input schema that uses much of JSON Schema 2020-12', {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    $defs: { address: { $anchor: 'addressDef', type: 'object', properties: { street: { type: 'string' }, city: { type: 'string' } } } },
    properties: {
      name: { type: 'string' }, address: { $ref: '#/$defs/address' },
      contactMethod: { type: 'string', enum: ['phone', 'email'] }, phone: { type: 'string' }, email: { type: 'string' }
    },
    allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
    if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
    then: { required: ['phone'] }, else: { required: ['email'] },
    additionalProperties: false
  }, (args) => text(JSON.stringify(args)));
  tool('regional_query', 'Has an argument that 2026-07-28 clients mirror into a header',
    obj({ region: str('Region', { 'x-mcp-header': 'Region' }), query: str('Query') }, []), (args) => text(JSON.stringify(args)));
  tool('ignores_cancel', 'Keeps working when it is cancelled', obj({ seconds: { type: 'number' } }, ['seconds']), async ({ seconds }) => {
    await sleep(seconds * 1000);
    return text(`ran the full ${seconds}s`);
  });
  tool('big_result', 'Returns a text block of the size asked for', obj({ bytes: { type: 'integer', minimum: 0 } }, ['bytes']), ({ bytes }) => text('x'.repeat(bytes)));
  tool('fixture_stats', 'Counts what ran in this process', obj(), () => ({ ...text(JSON.stringify(world.stats)), structuredContent: world.stats }));

  const byName = new Map(tools.map((t) => [t.name, t]));
  const dynamicTool = { name: 'dynamic_tool', description: 'Comes and goes', inputSchema: obj() };

  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: [...tools.map(({ name, description, inputSchema, more }) => ({ name, description, inputSchema, ...more })), ...(world.dynamicTools ? [dynamicTool] : [])]
  }));

  server.setRequestHandler(CallToolRequestSchema, async (request, extra) => {
    const { name, arguments: args = {} } = request.params;
    const t = byName.get(name);
    if (!t) {
      if (name === 'dynamic_tool' && world.dynamicTools) return text('dynamic');
      throw new McpError(ErrorCode.InvalidParams, `Unknown tool: ${name}`);
    }
    for (const key of t.inputSchema.required ?? []) {
      if (!(key in args)) return toolError(`Missing required argument: ${key}`);
    }
    world.bump('started', name);
    world.log({ ev: 'start', tool: name, id: extra.requestId, session: extra.sessionId });
    try {
      const result = await t.run(args, extra);
      world.bump('finished', name);
      world.log({ ev: 'finish', tool: name, id: extra.requestId, session: extra.sessionId });
      return result;
    } catch (error) {
      const cancelled = extra.signal.aborted;
      world.bump(cancelled ? 'cancelled' : 'failed', name);
      world.log({ ev: cancelled ? 'cancelled' : 'error', tool: name, id: extra.requestId, session: extra.sessionId, message: String(error?.message ?? error) });
      if (error instanceof McpError) throw error;
      return toolError(String(error?.message ?? error));
    }
  });

  // ── prompts ───────────────────────────────────────────────────────────────
  const user = (content) => ({ role: 'user', content });
  const prompts = {
    test_simple_prompt: { description: 'A prompt without arguments', get: () => [user({ type: 'text', text: 'This is a simple prompt for testing.' })] },
    test_prompt_with_arguments: {
      description: 'A prompt with two arguments',
      arguments: [{ name: 'arg1', description: 'First test argument', required: true }, { name: 'arg2', description: 'Second test argument', required: true }],
      get: (a) => [user({ type: 'text', text: `Prompt with arguments: arg1='${a.arg1}', arg2='${a.arg2}'` })]
    },
    test_prompt_with_embedded_resource: {
      description: 'A prompt that embeds a resource',
      arguments: [{ name: 'resourceUri', description: 'URI of the resource to embed', required: true }],
      get: (a) => [
        user({ type: 'resource', resource: { uri: a.resourceUri, mimeType: 'text/plain', text: 'Embedded resource content for testing.' } }),
        user({ type: 'text', text: 'Please process the embedded resource above.' })
      ]
    },
    test_prompt_with_image: {
      description: 'A prompt with an image',
      get: () => [user({ type: 'image', data: PNG, mimeType: 'image/png' }), user({ type: 'text', text: 'Please analyze the image above.' })]
    },
    test_input_required_result_prompt: {
      description: 'A prompt that asks the user first',
      get: async (_a, extra) => {
        const r = await elicit(extra, 'user_context', 'What context should the prompt use?', obj({ context: str('Context') }, ['context']));
        return [user({ type: 'text', text: `Use this context: ${r.content?.context ?? r.action}` })];
      }
    }
  };
  server.setRequestHandler(ListPromptsRequestSchema, () => ({
    prompts: [
      ...Object.entries(prompts).map(([name, p]) => ({ name, description: p.description, ...(p.arguments ? { arguments: p.arguments } : {}) })),
      ...(world.dynamicPrompts ? [{ name: 'dynamic_prompt', description: 'Comes and goes' }] : [])
    ]
  }));
  server.setRequestHandler(GetPromptRequestSchema, async (request, extra) => {
    const p = prompts[request.params.name];
    if (!p) throw new McpError(ErrorCode.InvalidParams, `Unknown prompt: ${request.params.name}`);
    return { description: p.description, messages: await p.get(request.params.arguments ?? {}, extra) };
  });

  // ── resources ─────────────────────────────────────────────────────────────
  const resources = {
    'test://static-text': { name: 'Static text', mimeType: 'text/plain', read: () => ({ text: 'This is the content of the static text resource.' }) },
    'test://static-binary': { name: 'Static binary', mimeType: 'image/png', read: () => ({ blob: PNG }) },
    'test://watched-resource': { name: 'Watched resource', mimeType: 'text/plain', read: () => ({ text: `Watched at ${new Date().toISOString()}` }) }
  };
  server.setRequestHandler(ListResourcesRequestSchema, () => ({
    resources: Object.entries(resources).map(([uri, r]) => ({ uri, name: r.name, mimeType: r.mimeType }))
  }));
  server.setRequestHandler(ListResourceTemplatesRequestSchema, () => ({
    resourceTemplates: [{ uriTemplate: 'test://template/{id}/data', name: 'Templated data', mimeType: 'application/json' }]
  }));
  server.setRequestHandler(ReadResourceRequestSchema, (request) => {
    const { uri } = request.params;
    const r = resources[uri];
    if (r) return { contents: [{ uri, mimeType: r.mimeType, ...r.read() }] };
    const m = /^test:\/\/template\/([^/]+)\/data$/.exec(uri);
    if (m) return { contents: [{ uri, mimeType: 'application/json', text: JSON.stringify({ id: m[1], templateTest: true, data: `Data for ID: ${m[1]}` }) }] };
    throw new McpError(RESOURCE_NOT_FOUND, `Resource not found: ${uri}`, { uri });
  });
  server.setRequestHandler(SubscribeRequestSchema, (request) => { subscriptions.add(request.params.uri); return {}; });
  server.setRequestHandler(UnsubscribeRequestSchema, (request) => { subscriptions.delete(request.params.uri); return {}; });

  // ── completion ────────────────────────────────────────────────────────────
  server.setRequestHandler(CompleteRequestSchema, (request) => {
    const words = ['paris', 'park', 'party', 'test', 'testing'];
    const values = words.filter((w) => w.startsWith(request.params.argument.value));
    return { completion: { values, total: values.length, hasMore: false } };
  });

  return server;
}
