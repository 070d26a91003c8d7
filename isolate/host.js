// The trusted worker: for each call it makes an isolate, which has nothing but its
// input, and tells how that went. It is the only worker that can make isolates.
import { WorkerEntrypoint } from 'cloudflare:workers';
import guest from 'guest';

const GUEST = 'sallyport:guest';
const PREFIX = 'export default async function(){';

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
function program(head, form, code, modules) {
  const text = () => new TextDecoder().decode(code);
  const main = { script: () => ({ js: PREFIX + text() + '\n}' }), module: () => ({ js: text() }), wasm: () => ({ wasm: code.slice().buffer }) }[form]();
  // What is imported before anything else starts sooner; but what a module does at its
  // top may need its input, and a script does nothing there.
  const early = form === 'script' || head.plain;
  const load = early ? `import * as program from ${JSON.stringify(head.name)}; const load = async () => program;` : 'const load = (name) => import(name);';
  const all = { [GUEST]: { js: load + '\n' + guest } };
  for (const name in hidden) all[name] = { js: hidden[name] };
  for (const m of modules) all[m.name] = m.content;
  all[head.name] = main;
  return all;
}

const content = {
  js: (b) => ({ js: new TextDecoder().decode(b) }),
  json: (b) => ({ json: JSON.parse(new TextDecoder().decode(b)) }),
  wasm: (b) => ({ wasm: b.slice().buffer }),
};

async function call(env, ctx, bytes) {
  const size = new DataView(bytes.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
  let at = 4 + size;
  const take = (n) => bytes.subarray(at, at += n);
  const code = take(head.code);
  const modules = head.modules.map((m) => ({ name: m.name, content: content[m.kind](take(m.size)) }));
  const input = bytes.subarray(at);
  const out = head.reach ? env.WAY : ctx.exports.Denied({ props: {} });
  let wrong;
  for (const form of head.forms) {
    try {
      const worker = env.LOADER.load({
        compatibilityDate: '2026-01-01', compatibilityFlags: [], mainModule: GUEST,
        modules: program(head, form, code, modules), env: {}, globalOutbound: out,
      });
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

export default {
  async fetch(request, env, ctx) {
    if (request.method !== 'POST') return new Response('pong');
    const end = request.headers.get('end');
    tell = (target = '') => console.log('\x1e' + end + ' ' + target);
    let told;
    try {
      told = await call(env, ctx, new Uint8Array(await request.arrayBuffer()));
    } catch (e) {
      told = { error: String(e?.message ?? e) };
    }
    told.error = told.error?.slice(0, 1 << 15); // the reader takes no more
    tell();
    const out = told.out ?? new Uint8Array();
    delete told.out;
    const head = new TextEncoder().encode(JSON.stringify(told) + '\n');
    const all = new Uint8Array(head.length + out.length);
    all.set(head);
    all.set(out, head.length);
    return new Response(all);
  },
};
