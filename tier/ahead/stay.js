(() => {
const fs = require("fs"), vm = require("vm"), util = require("util"), Module = require("module"), path = require("path");
const CODE = "/run/session/code", STDIN = "/run/session/stdin", here = path.join(process.cwd(), "[session]");
const own = new Module(here);
own.filename = here;
own.paths = Module._nodeModulePaths(process.cwd());
Object.assign(globalThis, { require: Module.createRequire(here), module: own, exports: own.exports, __dirname: process.cwd(), __filename: here });
process.argv.length = 1;
let count = 0, status = 0;

const load = (name) => import(name[0] === "." ? path.resolve(process.cwd(), name) : name);
const compile = (code, name) => new vm.Script(code, { filename: name, importModuleDynamically: load });

function fail(e) {
  status = 1;
  console.error(e instanceof Error && typeof e.stack === "string" ? e.stack.replace(/\n    at Script\.runInThisContext[^]*$/, "") : "Uncaught " + util.inspect(e));
}
process.on("uncaughtException", fail); // also of promises that nobody waits for

// A program with await at its top is run as the body of a function: what it declares is its own.
function run(code, name) {
  let script;
  try {
    script = compile(code, name);
  } catch (e) {
    if (!(e instanceof SyntaxError && /\bawait\b/.test(code))) throw e;
    script = compile("(async () => {" + code + "\n})()", name);
  }
  const value = script.runInThisContext();
  if (util.types.isPromise(value)) value.catch(fail);
}

function fresh() {
  fs.closeSync(0);
  if (fs.openSync(STDIN) !== 0) throw new Error("descriptor 0 is taken");
  let stdin;
  Object.defineProperty(process, "stdin", { configurable: true, enumerable: true, get: () => (stdin ??= new fs.ReadStream(null, { fd: 0, autoClose: false })) });
}

function next() {
  if (count > 0) {
    const code = process.exitCode ?? status;
    process.exitCode = undefined;
    fs.writeSync(4, (code & 255) + "\n");
  }
  const line = Buffer.alloc(16);
  if (fs.readSync(3, line) === 0) process.reallyExit(0);
  count++;
  status = 0;
  try {
    fresh();
    run(fs.readFileSync(CODE, "utf8"), "<call " + count + ">");
  } catch (e) {
    fail(e);
  }
  setImmediate(() => {}); // so that the loop turns, and comes here again when nothing is left to do
}
process.on("beforeExit", next);
})();
