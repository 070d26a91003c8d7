// What a module of JavaScript tries to get at that is not its own. It prints REACHED
// and how for all that worked, TRIED and how many there were, and END.
const target = TARGET; // an address of the host where a server answers
let tried = 0;
const attempt = async (name, how) => {
  tried++;
  try {
    const late = new Promise((_, no) => setTimeout(() => no(new Error("late")), 3000));
    const got = await Promise.race([(async () => how())(), late]);
    if (got !== undefined && got !== null && got !== false) console.log("REACHED " + name + ": " + String(got).slice(0, 120));
  } catch {}
};

for (const m of ["fs", "node:fs", "node:fs/promises", "node:child_process", "node:net", "node:http", "node:dgram", "node:os", "node:vm", "node:worker_threads", "node:module", "node:inspector", "node:v8", "node:tls", "node:dns", "node:cluster", "cloudflare:sockets", "workerd:unsafe", "cloudflare-internal:sockets", "node-internal:process", "file:///etc/passwd", "/etc/passwd", "../../../../etc/passwd", "data:text/javascript,export default 1", "http://" + target + "/x.js"]) {
  await attempt("import " + m, async () => Object.keys(await import(m)).join());
}
await attempt("require", () => (0, eval)("require")("fs").readFileSync("/etc/passwd", "utf8"));
await attempt("process.binding", () => process.binding("fs"));
await attempt("process.mainModule", () => process.mainModule.require("fs"));
await attempt("process.getBuiltinModule", () => process.getBuiltinModule("fs").readFileSync("/etc/passwd", "utf8"));
await attempt("process.env", () => Object.keys(process.env).join() || undefined);
await attempt("process.pid", () => process.pid);
await attempt("dlopen", () => { process.dlopen({exports: {}}, "/lib/x86_64-linux-gnu/libc.so.6"); return true });
await attempt("file", async () => (await (await fetch("file:///etc/passwd")).text()));
for (const u of ["http://" + target + "/", "https://" + target + "/", "http://localhost:" + target.split(":")[1] + "/", "http://169.254.169.254/latest/meta-data/", "http://[::1]:" + target.split(":")[1] + "/"]) {
  await attempt("fetch " + u, async () => { const r = await fetch(u); return r.ok && await r.text() });
}
await attempt("socket", async () => { const {connect} = await import("cloudflare:sockets"); const s = connect(target); await s.opened; return true });
await attempt("net", async () => { const net = await import("node:net"); return await new Promise((yes, no) => { const s = net.connect(Number(target.split(":")[1]), target.split(":")[0], () => yes(true)); s.on("error", no) }) });
await attempt("WebSocket", () => new Promise((yes, no) => { const w = new WebSocket("ws://" + target + "/"); w.onopen = () => yes(true); w.onerror = no }));
await attempt("EventSource", () => new Promise((yes, no) => { const w = new EventSource("http://" + target + "/"); w.onopen = () => yes(true); w.onerror = no }));
await attempt("cache", async () => { await caches.default.put("http://x.test/", new Response("kept", {headers: {"cache-control": "max-age=600"}})); const r = await caches.default.match("http://x.test/"); return r && await r.text() });
await attempt("bindings of the worker", async () => { const {env} = await import("cloudflare:workers"); return Object.keys(env).join() || undefined });
await attempt("exports of the worker", async () => { const {exports} = await import("cloudflare:workers"); return Object.keys(exports).filter((k) => k !== "default").join() || undefined });
await attempt("globals", () => ["LOADER", "env", "ctx", "host", "HOST", "loader", "__dirname", "__filename", "Deno", "Bun", "gc", "d8", "openDatabase", "XMLHttpRequest", "importScripts", "Worker", "SharedWorker"].filter((k) => k in globalThis).join() || undefined);
await attempt("code around the sandbox", () => Object.keys((async () => {}).constructor("return this")().LOADER).join());
await attempt("callers", () => { Error.prepareStackTrace = (_, all) => all.map((s) => s.getThis()).filter((o) => o && o !== globalThis); return new Error().stack.length || undefined });
await attempt("arguments of callers", () => (function f() { return f.caller && f.caller.arguments })());
await attempt("the time to a microsecond", () => { const a = performance.now(); for (let i = 0; i < 1e5; i++); const d = performance.now() - a; return d > 0 && d !== Math.trunc(d) ? d : undefined });

// What the runner itself uses after this is ours to change; nothing of it may be
// trusted outside.
await attempt("prototypes", () => {
  for (const p of [Object.prototype, Array.prototype, Promise.prototype, String.prototype]) Object.defineProperty(p, "toJSON", {value: () => "forged", configurable: true, writable: true});
});
console.log("TRIED " + tried);
console.log("END");
