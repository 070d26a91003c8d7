// The trusted worker: for each call it makes an isolate, which has nothing but its
// input, and tells how that went. It is the only worker that can make isolates.
import { WorkerEntrypoint } from 'cloudflare:workers';
import guest from 'guest';

const GUEST = 'sallyport:guest';
const PREFIX = 'export default async function(){';
const BRACE = '}'.charCodeAt(0);

// What the runtime brings along and isolates do not get: they would outlive their
// call, or go around fetch.
const closed = (names, why) => names.map((n) => `export const ${n} = () => { throw new Error(${JSON.stringify(why)}); };`).join('\n');
const hidden = {
  'cloudflare:workers': closed(['waitUntil', 'abortIsolate', 'env', 'exports'], 'not in this isolate'),
  'cloudflare:sockets': closed(['connect'], 'an isolate has no sockets: use fetch'),
};

// tell writes a line with the word of the call under way: what was denied to it, or,
// without that, its end.
let tell = () => {};

// Denied is the way out of isolates that reach nothing.
export class Denied extends WorkerEntrypoint {
  fetch(request) {
    const url = new URL(request.url);
    const port = Number(url.port) || (url.protocol === 'http:' ? 80 : 443);
    const target = `${url.hostname}:${port}`;
    tell(target.slice(0, 260));
    request.body?.pipeTo(new WritableStream()).catch(() => {}); // a body that nobody reads would keep the program waiting
    return new Response(JSON.stringify({
      error: 'egress_denied', reason: 'not_listed', host: url.hostname, port,
      message: `${target} is not among what this tool may reach`,
      hint: "this is a rule, not a fault: do not look for another way; an operator can allow HOST:PORT in the tool's egress list",
    }) + '\n', { status: 403, headers: { 'Content-Type': 'application/json', 'Sallyport-Egress': 'denied; reason=not_listed' } });
  }
  connect() {
    throw new Error('an isolate has no sockets: use fetch');
  }
}

// program makes the modules of an isolate for one form of the code: a script is the
// body of a function, so that it can wait and reach out from its first line.
function program({ head, code, modules }, form, ahead, prints) {
  const text = () => new TextDecoder().decode(code);
  const main = { script: () => ({ js: PREFIX + text() + '\n}' }), module: () => ({ js: text() }), wasm: () => ({ wasm: code.slice().buffer }) }[form]();
  // What is imported before anything else starts sooner; but what a module does at its
  // top may need its input, or is not to be done before its call. A script does nothing
  // there, unless it ends the function that it is the body of.
  const early = ahead ? form === 'script' && !code.includes(BRACE) : form === 'script' || head.plain;
  const load = early ? `import * as program from ${JSON.stringify(head.name)}; const load = async () => program;` : 'const load = (name) => import(name);';
  // The first line that an isolate prints takes the runtime as long as a call may. This one is nobody's.
  const first = prints ? 'console.log();' : '';
  const all = { [GUEST]: { js: load + first + '\n' + guest } };
  for (const name in hidden) all[name] = { js: hidden[name] };
  for (const m of modules()) all[m.name] = m.content;
  all[head.name] = main;
  return all;
}

const content = {
  js: (b) => ({ js: new TextDecoder().decode(b) }),
  json: (b) => ({ json: JSON.parse(new TextDecoder().decode(b)) }),
  wasm: (b) => ({ wasm: b.slice().buffer }),
};

// sourceOf is what an isolate is made of, and the rest, which is the call's.
function sourceOf(bytes) {
  const size = new DataView(bytes.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
  let at = 4 + size;
  const take = (n) => bytes.subarray(at, at += n);
  const code = take(head.code);
  const files = head.modules.map((m) => [m, take(m.size)]);
  const modules = () => files.map(([m, b]) => ({ name: m.name, content: content[m.kind](b) }));
  return { head, code, modules, rest: bytes.subarray(at) };
}

// make has the runtime begin to make an isolate.
function make(env, source, form, ahead, prints) {
  return env.LOADER.load({
    compatibilityDate: '2026-01-01', compatibilityFlags: [], mainModule: GUEST, modules: program(source, form, ahead, prints),
    env: {}, globalOutbound: source.head.reach ? env.WAY : env.DENIED,
  });
}

async function call(env, source, input, made) {
  const { head } = source;
  let wrong;
  for (const form of head.forms) {
    try {
      const worker = made ?? make(env, source, form);
      made = undefined;
      const answer = await worker.getEntrypoint().fetch('http://isolate/', { method: 'POST', headers: { form, before: form === 'script' ? PREFIX.length : 0 }, body: input });
      return { exit: Number(answer.headers.get('exit') ?? 1), out: new Uint8Array(await answer.arrayBuffer()) };
    } catch (e) {
      const why = String(e?.message ?? e).replace(/^Failed to start Worker:\nUncaught /, '');
      if (why.includes('had hung')) return { idle: true };
      const exit = /process\.exit\((\d+)\) API was called/.exec(why); // of node:process
      if (exit) return { exit: Number(exit[1]) & 255 };
      if (!why.includes('SyntaxError')) return { error: why };
      // A module's positions are those of the text; but a module cannot return.
      if (!wrong || (form === 'module') !== why.includes('Illegal return')) wrong = form === 'script' ? shift(head, why) : why;
    }
  }
  return { error: wrong };
}

// shift takes the length of PREFIX from positions on the first line.
function shift(head, text) {
  return text.replaceAll(new RegExp(`(${head.name.replace(/[^\w]/g, '\\$&')}:1:)(\\d+)`, 'g'), (_, where, n) => where + Math.max(1, n - PREFIX.length));
}

// whole has a call that came at once.
async function whole(request) {
  const source = sourceOf(new Uint8Array(await request.arrayBuffer()));
  return { source, input: source.rest };
}

// ahead has a call of which what its isolate is made of came first. The isolate is made
// then, and nothing of the program runs in it before the rest comes.
async function ahead(request, env) {
  const reader = request.body.getReader({ mode: 'byob' });
  const read = async (n) => (await reader.readAtLeast(n, new Uint8Array(n))).value;
  const part = async () => read(new DataView((await read(4)).buffer).getUint32(0, true));
  const source = sourceOf(await part());
  let made;
  try {
    made = make(env, source, source.head.forms[0], true, request.headers.get('prints') === 'true');
  } catch {} // told when the call comes
  return { source, made, input: await part() };
}

export default {
  async fetch(request, env) {
    if (request.method === 'GET') return new Response('pong');
    let told;
    let over = () => {}; // nothing is told of what never became a call
    try {
      const { source, input, made } = await (request.method === 'PUT' ? ahead(request, env) : whole(request));
      const end = request.headers.get('end');
      over = tell = (target = '') => console.log('\x1e' + end + ' ' + target);
      told = await call(env, source, input, made);
    } catch (e) {
      told = { error: String(e?.message ?? e) };
    }
    told.error = told.error?.slice(0, 1 << 15); // the reader takes no more
    over();
    const out = told.out ?? new Uint8Array();
    delete told.out;
    const head = new TextEncoder().encode(JSON.stringify(told) + '\n');
    const all = new Uint8Array(head.length + out.length);
    all.set(head);
    all.set(out, head.length);
    return new Response(all);
  },
};
