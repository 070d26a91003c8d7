import _weakref, atexit, builtins, gc, io, os, sys

del sys.path[0]  # this file may have the name of a module
import collections, datetime, functools, itertools, json, math, re, string, traceback  # what programs use most

for name in more.split():
    __import__(name)

HAVE_GC = 1 << 14  # Py_TPFLAGS_HAVE_GC
EXCL = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def store(path, text):
    fd = os.open(path, EXCL, 0o644)
    while text:
        text = text[os.write(fd, text):]
    os.close(fd)


def main_of(path):
    return dict(
        __name__="__main__", __file__=path, __builtins__=builtins, __doc__=None, __package__=None,
        __spec__=None, __loader__=None, __cached__=None, __annotations__={},
    )


def unseen(o):
    """Whether nobody would notice that Python does not take o apart."""
    kind = type(o)
    if kind in files:
        return o.closed
    if kind is _weakref.ref:
        return o.__callback__ is None
    if isinstance(o, type) and not o.__flags__ & HAVE_GC and "__del__" in vars(o):
        return False  # its instances are in no list
    if kind not in quiet:
        quiet[kind] = not any("__del__" in vars(c) for c in kind.__mro__)
    return quiet[kind]


def end(status):
    """Ends as Python does, but takes nothing apart where nobody would notice.

    Where Python does it, thaw() was called: what is frozen is never collected."""
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        streams = sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__
        if (
            atexit._ncallbacks() == callbacks and not gc.callbacks and not gc.get_debug()
            and "_ctypes" not in sys.modules and "_cffi_backend" not in sys.modules  # what C has buffered
            and all(type(s) is io.TextIOWrapper for s in streams) and all(map(unseen, gc.get_objects()))
        ):
            for stream in streams:
                if not stream.closed:
                    stream.flush()
            leave(status)
    except Exception:
        pass
    thaw()
    sys.exit(status)


def shadows():
    """Whether files of the program hide modules that are here already."""
    names = [os.path.basename(path)] if text else os.listdir(os.path.dirname(path))
    return not before.isdisjoint(name.partition(".")[0] for name in names)


def rehearse():
    """Does once what a program does: memory that was touched is quicker."""
    text = b"""import sys
class A:
    def f(self, *a, **k): return [f"{x!r:>9}" for x in sorted(a)]
try: A().f(1, 2.5, k={}); raise KeyError("x")
except KeyError as e: print(e, len(str(e).encode()), {i: i * i for i in range(9)})
"""
    path = os.path.normpath(os.path.join(here, ".rehearsal"))
    store(path, text)
    with open(path, "rb") as f, open(os.devnull, "w") as sys.stdout:
        exec(compile(f.read(), path, "exec", dont_inherit=True), main_of(path))
    os.unlink(path)
    sys.stdout = sys.__stdout__
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    all(map(unseen, gc.get_objects()))


here, leave, thaw = os.getcwd(), os._exit, gc.unfreeze
files = {io.TextIOWrapper, io.BufferedWriter, io.BufferedReader, io.BufferedRandom, io.FileIO}
quiet = {}  # kinds of things that have no end of their own
rehearse()
before, callbacks = set(sys.modules), atexit._ncallbacks()
gc.collect()
gc.freeze()
os.write(4, b"r")
os.close(4)
size = 4
while size == 4:  # an order of nothing: a copy of this process has yet to touch what the first one did
    order = os.read(3, 65536)
    if not order:
        os._exit(0)  # the sandbox was never used
    size += int.from_bytes(order[:4], "little")
    if size == 4:
        rehearse()
while len(order) < size:
    order += os.read(3, 65536)
os.close(3)
if "random" in sys.modules:  # this process may be one of many copies
    sys.modules["random"].seed()
if "tempfile" in sys.modules:
    sys.modules["tempfile"]._name_sequence = None
if "ssl" in sys.modules:
    sys.modules["ssl"].RAND_add(os.urandom(64), 64.0)
count, more = (int.from_bytes(order[i:i + 4], "little") for i in (4, 8))
*words, text = order[12:].split(b"\0", count + more)
words = [os.fsdecode(w) for w in words]
sys.argv[:] = words[1:count]
sys.orig_argv[:] = words[:count]
for pair in words[count:]:
    name, _, value = pair.partition("=")
    os.environ[name] = value
if os.environ.get("PYTHONUNBUFFERED"):
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True, line_buffering=True)
path = os.path.normpath(os.path.join(here, sys.argv[0]))
sys.path.insert(0, os.path.dirname(path))
vars(sys.modules["__main__"]).clear()
vars(sys.modules["__main__"]).update(main_of(path))
again = shadows()
try:
    if text:
        store(path, text)
    else:
        with open(path, "rb") as f:
            text = f.read()
    code = again or compile(text, path, "exec", dont_inherit=True)
except SyntaxError as e:
    try:
        text.decode()
        if not e.lineno:
            raise ValueError
        sys.excepthook(type(e), e.with_traceback(None), None)
        sys.exit(1)
    except ValueError:
        again = True
except (OSError, ValueError):
    again = True
if again:  # Python has other words for it, or other modules
    os.execvp(words[0], words[:count])


def report(kind, e, _):
    """Is sys.excepthook for an exception that nobody caught, without our part of the stack."""
    global trace
    sys.last_traceback, trace, sys.excepthook = trace, None, hook
    hook(kind, e.with_traceback(sys.last_traceback), sys.last_traceback)


try:
    exec(code, vars(sys.modules["__main__"]))  # nothing of ours holds it: it is to go as modules do
    sys.setprofile(None)
    sys.settrace(None)
    status = 0
except SystemExit as e:
    sys.setprofile(None)
    sys.settrace(None)
    status = 0 if e.code is None else e.code
    if type(status) is not int or not 0 <= status <= 255:
        thaw()
        raise
except BaseException as e:
    sys.setprofile(None)
    sys.settrace(None)
    trace, hook = e.__traceback__.tb_next, getattr(sys, "excepthook", None)
    if callable(hook):
        sys.excepthook = report
    thaw()
    raise
end(status)
