"""Compiles the modules of the image and writes what Python would keep of them."""
import importlib.util, marshal, os, struct, sys, warnings

warnings.simplefilter("ignore")
UNCHECKED = 0b01  # by hash, and never compared: the image does not change
out = sys.stdout.buffer
for root in sys.argv[1:]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in ("test", "tests", "idlelib", "lib2to3", "__pycache__"))
        for name in sorted(f for f in files if f.endswith(".py")):
            path = os.path.join(folder, name)
            with open(path, "rb") as f:
                source = f.read()
            try:
                code = compile(source, path, "exec", dont_inherit=True, optimize=0)
            except (SyntaxError, ValueError):
                continue  # for another version of Python
            data = importlib.util.MAGIC_NUMBER + struct.pack("<L", UNCHECKED) + importlib.util.source_hash(source) + marshal.dumps(code)
            to = os.fsencode(importlib.util.cache_from_source(path, optimization=""))
            out.write(struct.pack("<LL", len(to), len(data)) + to + data)
