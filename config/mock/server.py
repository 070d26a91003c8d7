# A mock MCP server: canned answers, errors, latency and progress. Its tools come as JSON in the first argument.
import json, sys, threading, time

tools = {t["name"]: t for t in json.loads(sys.argv[1])}
out, gone = threading.Lock(), set()


def send(message):
    with out:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def fits(when, args):
    return all(k in args and args[k] == v for k, v in when.items())


def call(id, params):
    tool, args = tools[params["name"]], params.get("arguments") or {}
    answer = next((a for a in tool["answers"] if fits(a.get("when") or {}, args)), None)
    if answer is None:
        answer = {"text": "no answer of %s fits these arguments" % tool["name"], "error": True}
    token, steps = (params.get("_meta") or {}).get("progressToken"), answer.get("progress", 0)
    for i in range(max(steps, 1)):
        time.sleep(answer.get("latency", 0) / max(steps, 1))
        if id in gone:
            return
        if steps and token is not None:
            send({"method": "notifications/progress", "params": {"progressToken": token, "progress": i + 1, "total": steps}})
    if "fault" in answer:
        send({"id": id, "error": {"code": -32000, "message": answer["fault"]}})
        return
    result = {"content": [{"type": "text", "text": answer.get("text", json.dumps(answer.get("structured", args)))}]}
    if "structured" in answer:
        result["structuredContent"] = answer["structured"]
    if answer.get("error"):
        result["isError"] = True
    send({"id": id, "result": result})


def handle(m):
    id, method, params = m.get("id"), m.get("method"), m.get("params") or {}
    if method == "notifications/cancelled":
        gone.add(params.get("requestId"))
    elif id is None:
        return
    elif method == "initialize":
        send({"id": id, "result": {"protocolVersion": params.get("protocolVersion", "2025-11-25"), "capabilities": {"tools": {}}, "serverInfo": {"name": "mock", "version": "1"}}})
    elif method == "ping":
        send({"id": id, "result": {}})
    elif method == "tools/list":
        send({"id": id, "result": {"tools": [{k: t[k] for k in ("name", "description", "inputSchema", "annotations") if k in t} for t in tools.values()]}})
    elif method == "tools/call" and params.get("name") in tools:
        threading.Thread(target=call, args=(id, params), daemon=True).start()
    else:
        send({"id": id, "error": {"code": -32602 if method == "tools/call" else -32601, "message": "the mock has no %s" % (params.get("name") or method)}})


for line in sys.stdin:
    if line.strip():
        handle(json.loads(line))
