package image

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"
)

func TestAddBytecode(t *testing.T) {
	record := func(name, data string) []byte {
		b := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(len(name))), uint32(len(data)))
		return append(append(b, name...), data...)
	}
	fresh := func() *tree {
		spool, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { spool.Close() })
		tr := newTree(spool, 0)
		for _, p := range []string{"usr/lib/python3/a.py", "usr/lib/python3/b.py", "etc/passwd"} {
			if err := tr.replace(p, "x"); err != nil {
				t.Fatal(err)
			}
		}
		return tr
	}
	tr := fresh()
	const good = "/usr/lib/python3/__pycache__/a.cpython-311.pyc"
	if err := tr.addBytecode(append(record(good, "bytes"), record(strings.Replace(good, "a.c", "b.c", 1), "")...)); err != nil {
		t.Fatal(err)
	}
	if n := tr.get(good[1:]); n == nil || n.size != 5 || n.mode != 0o644 {
		t.Errorf("%+v", n)
	}
	for name, b := range map[string][]byte{
		"twice":           append(record(good, ""), record(good, "")...),
		"a file":          record("/etc/passwd", "x"),
		"no module":       record("/usr/lib/python3/__pycache__/c.cpython-311.pyc", ""),
		"beside":          record("/usr/lib/python3/a.cpython-311.pyc", ""),
		"no bytecode":     record("/usr/lib/python3/__pycache__/a.py", ""),
		"another tag":     record("/usr/lib/python3/__pycache__/a.cpython-311.opt-1.pyc", ""),
		"up":              record("/usr/lib/../lib/python3/__pycache__/a.cpython-311.pyc", ""),
		"cut":             record(good, "bytes")[:20],
		"shorter":         {1, 2, 3},
		"longer than all": binary.LittleEndian.AppendUint64(nil, 1<<63|1<<31),
	} {
		if fresh().addBytecode(b) == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
