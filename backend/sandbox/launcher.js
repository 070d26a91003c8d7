"use strict";
// Makes functions of the tools that the program may call, and becomes the program.
// Calls are numbered in the order in which the program makes them, and each is
// settled by itself, in that order: a program that is run again makes the same ones.
const fs = require("fs"), net = require("net"), path = require("path"), Module = require("module");

const data = path.join(__dirname, ".tools.json");
const { main, socket: line, own } = JSON.parse(fs.readFileSync(data, "utf8"));
fs.unlinkSync(data);
fs.unlinkSync(__filename);
delete require.cache[__filename];

class ToolError extends Error {
  constructor(tool, why) {
    super(`${tool}: ${why.message}` + (why.hint ? ` (${why.hint})` : ""));
    this.name = "ToolError";
    this.tool = tool;
    Object.assign(this, why, { message: this.message });
  }
}

const calls = new Map(), queue = [], answers = [];
let socket, rest = "", last = 0, flying = 0, turning = false;

function connect() {
  socket = net.connect(line);
  socket.setEncoding("utf8");
  socket.on("data", (text) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    answers.push(...lines);
    turn();
  });
  const gone = () => {
    for (const c of calls.values()) c.reject({ code: "canceled", message: "the gateway listens no more" });
    calls.clear();
  };
  socket.on("error", gone);
  socket.on("close", gone);
}

// turn settles one answer, and the next when all that follows from it was done.
function turn() {
  if (turning || answers.length === 0) return;
  turning = true;
  setImmediate(() => {
    turning = false;
    const answer = JSON.parse(answers.shift()), c = calls.get(answer.n);
    calls.delete(answer.n);
    flying--;
    if (calls.size === 0) socket.unref();
    if (queue.length > 0) send(queue.shift());
    if (c && answer.error) c.reject(answer.error);
    else if (c) c.resolve(answer.result);
    turn();
  });
}

function send(line) {
  flying++;
  socket.write(line);
}

// ask makes a call, of which nothing is sent before it has its number.
function ask(tool, args) {
  const text = JSON.stringify(args), line = `{"n":${last + 1},"tool":${JSON.stringify(String(tool))},"args":${text}}\n`;
  if (typeof text !== "string" || text[0] !== "{") throw new TypeError(`${tool}: the arguments must be an object`);
  if (last >= own.most) throw { code: "rate_limited", message: `a script makes at most ${own.most} calls` };
  if (Buffer.byteLength(line) > own.bytes) throw { code: "too_large", message: `the arguments take more than ${own.bytes} bytes` };
  const n = ++last;
  if (!socket) connect();
  socket.ref();
  return new Promise((resolve, reject) => {
    calls.set(n, { tool, resolve, reject });
    if (flying < own.atOnce) send(line);
    else queue.push(line);
  });
}

// call calls a tool and returns its whole result, also one that is an error.
async function call(tool, args = {}) {
  try {
    return await ask(tool, args);
  } catch (why) {
    throw why instanceof Error ? why : new ToolError(tool, why); // made here, so that it tells where in the program
  }
}

function textOf(result) {
  const content = result.content || [];
  return content.every((c) => c.type === "text") ? content.map((c) => c.text).join("\n") : undefined;
}

// valueOf is what a function returns: the structured content, or the text, or
// where there is more than text the whole result.
function valueOf(tool, result) {
  const text = textOf(result);
  if (result.isError) throw new ToolError(tool, { code: "tool_error", message: text || "the tool failed", result });
  if (result.structuredContent !== undefined) return result.structuredContent;
  return text === undefined ? result : text;
}

const matches = (pattern, name) => pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : pattern === name;

const put = (to, name, value) => Object.defineProperty(to, name, { value, enumerable: true, configurable: true, writable: true });

const tools = Object.create(null);
for (const { name, path: [first, second] } of own.tools) {
  const f = async (args) => valueOf(name, await call(name, args));
  if (second !== undefined) {
    put(Object.hasOwn(tools, first) ? tools[first] : put(tools, first, Object.create(null))[first], second, f);
    continue;
  }
  if (Object.hasOwn(tools, first)) for (const [k, v] of Object.entries(tools[first])) put(f, k, v);
  put(tools, first, f);
}
const those = (pattern, show) => own.tools.filter((t) => matches(pattern, t.name)).map(show);
put(tools, "$call", call);
put(tools, "$error", ToolError);
put(tools, "$list", (pattern = "*") => those(pattern, (t) => `${t.call} - ${t.about}`).join("\n"));
put(tools, "$describe", (pattern = "*") => those(pattern, (t) => t.declaration).join("\n\n"));
Object.defineProperty(globalThis, "tools", { value: tools, configurable: true, writable: true });

process.argv.splice(1, 1, path.join(__dirname, main));
globalThis.require = Module.createRequire(process.argv[1]); // the program is an ES module, so that it can await
Module.runMain(process.argv[1]);
