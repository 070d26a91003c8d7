import builtins, linecache, os, signal, sys, traceback, types

CODE, STDIN = "/run/session/code", "/run/session/stdin"


def become_main():
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = builtins
    sys.argv[:] = [""]
    sys.path[0] = os.getcwd()
    return main.__dict__


def run(code, name, main):
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    try:
        exec(compile(code, name, "exec", dont_inherit=True), main)
    except SystemExit as e:
        if e.code is None or isinstance(e.code, int):
            return (e.code or 0) & 255
        print(e.code, file=sys.stderr)
        return 1
    except BaseException as e:
        trace = e.__traceback__
        while trace and trace.tb_frame.f_code.co_filename == "<session>":
            trace = trace.tb_next
        if sys.excepthook is sys.__excepthook__:  # it would not find the source
            traceback.print_exception(e.with_traceback(trace))
        else:
            sys.excepthook(type(e), e.with_traceback(trace), trace)
        return 1
    return 0


def flush():
    status = 0
    for f in (sys.stdout, sys.stderr):
        try:
            f.flush()
        except Exception:
            status = 120
    return status


def machine():
    """Names the machine: another name, and this is a copy of what it was."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as f:
            return f.read()
    except OSError:
        return b""


def seed():
    if "random" in sys.modules:
        sys.modules["random"].seed()
    if "tempfile" in sys.modules:
        sys.modules["tempfile"]._name_sequence = None
    if "ssl" in sys.modules:
        sys.modules["ssl"].RAND_add(os.urandom(64), 64.0)


def stay():
    main, me, count, ear = become_main(), os.getpid(), 0, open(3, "rb", closefd=False)
    for fd in (3, 4):
        os.set_inheritable(fd, False)
    sys.stdout.reconfigure(line_buffering=True)
    here = machine()
    while ear.readline():
        if here != (here := machine()):
            seed()
        count += 1
        fd = os.open(STDIN, os.O_RDONLY)
        os.dup2(fd, 0)
        os.close(fd)
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)
        name = f"<call {count}>"
        try:
            with open(CODE, "rb") as f:
                code = f.read().decode("utf-8")
            status = run(code, name, main)
        except UnicodeDecodeError as e:
            print(f"{name}: {e}", file=sys.stderr)
            status = 1
        if figures := sys.modules.get("sallyport_figures"):
            try:
                figures.show()
            except Exception:
                traceback.print_exc()
                status = 1
        status = flush() or status
        if os.getpid() != me:  # a child that came this far
            os._exit(status)
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.write(4, b"%d\n" % status)


stay()
