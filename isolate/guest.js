// The first module of every isolate: it gives the program its input, catches what
// it prints, and tells how it ended. It runs beside untrusted code and proves
// nothing: whatever the program makes of it, it does to its own result.
//
// load, which gets the program, stands before this text: see host.js.
//
// What is printed is marked, line by line, with a word that only this call
// knows: see output.go.

const { stringify, parse } = JSON;
const { apply } = Reflect;
const { isSafeInteger } = Number;
const native = console;
const log = console.log;

const told = new Set();
let word;
const mark = (s) => apply(log, native, ['\x1e' + word + ' ' + s]);
const write = (stream, text) => mark(stream + stringify(text));

// print prints as the runtime does; one string alone goes exactly as it is, with
// characters that the runtime would not print.
const print = (stream, how) => (...args) => {
  if (how === log && args.length === 1 && typeof args[0] === 'string') {
    write(stream, args[0] + '\n');
  } else {
    mark(stream);
    apply(how, native, args);
  }
};

function giveConsole() {
  const mine = {};
  for (const name of Object.keys(native)) {
    if (typeof native[name] === 'function') mine[name] = print('1', native[name]);
  }
  mine.log = mine.info = mine.debug = print('1', log);
  mine.error = mine.warn = print('2', log);
  mine.trace = (...args) => mine.error('Trace:', ...args, '\n' + new Error().stack.split('\n').slice(2).join('\n'));
  mine.assert = (ok, ...args) => { if (!ok) mine.error('Assertion failed', ...args); };
  globalThis.console = mine;
}

// giveTimers has what a timer throws end the program, as it would elsewhere.
function giveTimers(end) {
  for (const name of ['setTimeout', 'setInterval']) {
    const set = globalThis[name];
    globalThis[name] = (f, ...rest) => set(typeof f !== 'function' ? f : (...args) => {
      try {
        return f(...args);
      } catch (e) {
        end(e);
      }
    }, ...rest);
  }
}

const stream = (n) => ({
  write(chunk) {
    write(n, typeof chunk === 'string' ? chunk : new TextDecoder().decode(chunk));
    return true;
  },
});

function giveInput(head, body) {
  let at = 0;
  const take = (size) => body.subarray(at, at += size);
  const text = (bytes) => new TextDecoder().decode(bytes);
  globalThis.stdin = text(take(head.stdin));
  globalThis.argv = head.argv.slice(1);
  globalThis.files = Object.create(null);
  globalThis.bytes = Object.create(null);
  for (const f of head.files) {
    const content = take(f.size);
    globalThis.bytes[f.path] = content;
    Object.defineProperty(globalThis.files, f.path, { enumerable: true, get: () => text(content) });
  }
}

const status = (n) => {
  n = Number(n);
  return isSafeInteger(n) ? n & 255 : 1;
};

function giveProcess(head, leave) {
  globalThis.process = {
    argv: ['workerd', ...head.argv], env: Object.fromEntries(head.env), platform: 'workerd', exitCode: undefined,
    stdout: stream('1'), stderr: stream('2'), exit(n) {
      leave(status(n ?? this.exitCode ?? 0));
      const e = new Error('process.exit');
      told.add(e);
      throw e;
    },
  };
}

// fail tells what was thrown, once. Positions on the first line are those of the
// program, not of what was put before it.
function fail(head, e) {
  if (told.has(e)) return; // what the program rejected may be told twice
  told.add(e);
  try {
    describe(head, e);
  } catch {
    write('2', 'Uncaught: what was thrown cannot be shown\n');
  }
}

function describe(head, e) {
  let text = e instanceof Error ? e.stack : undefined;
  if (typeof text === 'string') {
    text = text.split('\n').filter((l) => !l.includes('sallyport:')).join('\n');
    text = text.replaceAll(head.argv[0] + ':1:', (m, at) => m + '\0').replace(/\0(\d+)/g, (_, n) => Math.max(1, n - head.before));
    write('2', text + '\n');
  } else {
    mark('2');
    apply(log, native, ['Uncaught', e]);
  }
}

async function run(head) {
  const program = await load(head.argv[0]);
  switch (head.form) {
    case 'script':
      return program.default();
    case 'module':
      if (typeof program.default === 'function') {
        const result = await program.default(globalThis.stdin === '' ? undefined : parse(globalThis.stdin));
        const text = stringify(result); // undefined of what is not data
        if (text !== undefined) return text + '\n';
      }
      return;
    case 'wasm':
      return call(program.default, head.argv.slice(1));
  }
}

// call calls an export of a Wasm module: the one that is named, or its start.
function call(module, [name, ...args]) {
  for (const i of WebAssembly.Module.imports(module)) {
    throw new Error(`the module imports ${i.module}.${i.name}, and an isolate has nothing to import: programs for WASI run in the tier wasm`);
  }
  const all = new WebAssembly.Instance(module, {}).exports;
  const names = Object.keys(all).filter((n) => typeof all[n] === 'function');
  name ??= ['_start', 'main'].find((n) => names.includes(n)) ?? (names.length === 1 ? names[0] : undefined);
  if (!names.includes(name)) {
    throw new Error(`the module exports no function ${name ?? '_start or main'}; it exports: ${names.join(', ') || 'none'}`);
  }
  let result;
  try {
    result = all[name](...args.map(Number));
  } catch (e) {
    if (!(e instanceof TypeError)) throw e;
    result = all[name](...args.map(BigInt)); // 64-bit integers
  }
  if (result !== undefined) return String(result) + '\n';
}

export default {
  async fetch(request) {
    const body = new Uint8Array(await request.arrayBuffer());
    const size = new DataView(body.buffer).getUint32(0, true);
    const head = parse(new TextDecoder().decode(body.subarray(4, 4 + size)));
    head.form = request.headers.get('form');
    head.before = Number(request.headers.get('before'));
    word = head.word;
    let code;
    let leave;
    const left = new Promise((resolve) => { leave = (n) => { code ??= n; resolve(); }; });
    const end = (e) => { leave(1); fail(head, e); }; // in this order: nothing of the program's can come between
    giveConsole();
    giveInput(head, body.subarray(4 + size));
    giveProcess(head, leave);
    if (head.lingers) giveTimers(end);
    const { process } = globalThis;
    addEventListener('unhandledrejection', (e) => { if (code === undefined) end(e.reason); });
    addEventListener('error', (e) => { if (code === undefined) end(e.error); });
    let result = await Promise.race([left, run(head).catch(end)]);
    if (head.form === 'script') result = undefined;
    if (head.lingers && code === undefined) {
      // What the program has begun goes on. The runtime ends this request when
      // nothing is left to wait for.
      if (result !== undefined) write('1', result);
      result = undefined;
      mark('x' + status(process.exitCode ?? 0));
      await Promise.race([left, new Promise(() => {})]);
    }
    return new Response(result, { headers: { exit: String(code ?? status(process.exitCode ?? 0)) } });
  },
};
