using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  v8Flags = ["--max-heap-size=HEAP"],
  services = [
    (name = "host", worker = .host),
    (name = "internet", network = (allow = [])),
    (name = "way", external = (address = "unix:/way/s", http = (style = proxy, injectRequestHeaders = [(name = "Host", value = "way")])))
  ],
  sockets = [ (name = "calls", http = (), service = "host") ]
);
const host :Workerd.Worker = (
  modules = [ (name = "host", esModule = embed "../host.js"), (name = "guest", text = embed "../guest.js") ],
  compatibilityDate = "2026-01-01",
  bindings = [
    (name = "LOADER", workerLoader = ()), (name = "WAY", service = "way"),
    (name = "DENIED", service = (name = "host", entrypoint = "Denied")),
  ],
  globalOutbound = "internet",
);
