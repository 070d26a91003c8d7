import atexit, builtins, gc, os, sys
import collections, datetime, functools, io, itertools, json, math, re, string, traceback  # what programs use most

before, callbacks = set(sys.modules), atexit._ncallbacks()
gc.collect()
gc.freeze()
os.write(4, b"r")
os.close(4)
orders = b""
while part := os.read(3, 65536):
    orders += part
os.close(3)
count, *words = [os.fsdecode(w) for w in orders.split(b"\0")[:-1]]
count = int(count)
if not words:
    os._exit(0)  # the sandbox was never used
sys.argv[:] = words[1:count]
sys.orig_argv[:] = words[:count]
for name in list(os.environ):
    del os.environ[name]
for pair in words[count:]:
    name, _, value = pair.partition("=")
    os.environ[name] = value
if os.environ.get("PYTHONUNBUFFERED"):
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True, line_buffering=True)
path = os.path.abspath(sys.argv[0])
sys.path[0] = os.path.dirname(path)
main = sys.modules["__main__"].__dict__
main.clear()
main.update(
    __name__="__main__", __file__=path, __builtins__=builtins, __doc__=None, __package__=None,
    __spec__=None, __loader__=None, __cached__=None, __annotations__={},
)
try:
    with open(path, "rb") as f:
        code = compile(f.read(), path, "exec", dont_inherit=True)
except SyntaxError as e:
    sys.excepthook(type(e), e.with_traceback(None), None)
    sys.exit(1)
except (OSError, ValueError):  # it has other words for these
    os.execvp(words[0], words[:count])


def end(status):
    """Ends as Python does, but leaves what was here before the program as it is."""
    if atexit._ncallbacks() != callbacks:
        sys.exit(status)
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    home = sys.path[0] + "/"
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name == "__main__" or name not in before and type(file) is str and file.startswith(home):
            vars(module).clear()
    gc.collect()
    try:
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            if stream is not None and not stream.closed:
                stream.flush()
    except Exception:
        sys.exit(status)
    os._exit(status)


try:
    exec(code, main)
    status = 0
except SystemExit as e:
    if not (e.code is None or type(e.code) is int):
        raise
    status = (e.code or 0) & 0xFF
except BaseException as e:
    trace = e.__traceback__.tb_next
    sys.excepthook(type(e), e.with_traceback(trace), trace)
    if isinstance(e, KeyboardInterrupt):
        import signal

        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    sys.exit(1)
end(status)
