package image

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A Runner runs a program of an image, an EROFS file that is not finished, where
// it can harm nothing, and returns what it printed.
type Runner func(ctx context.Context, file string, argv []string) ([]byte, error)

// InSandbox runs programs in sandboxes, by the program sallyport-sandboxd in a
// folder.
func InSandbox(programs string) Runner {
	return func(ctx context.Context, file string, argv []string) ([]byte, error) {
		var said bytes.Buffer
		cmd := exec.CommandContext(ctx, filepath.Join(programs, "sallyport-sandboxd"), append([]string{"run-image", file}, argv...)...)
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.Bytes()))
		}
		return out, nil
	}
}

//go:embed bytecode.py
var bytecodeProgram string

// pythonFolders are where modules are.
const pythonFolders = "usr/lib"

// compile makes the bytecode of the image's Python modules, which its packages
// would make when they are installed. Without it, every sandbox compiles each
// module that it imports. The image's own Python makes it; what it says is data,
// of which addBytecode takes only bytecode beside a module.
func (t *tree) compile(ctx context.Context, work string, run Runner) ([]byte, error) {
	var roots []string
	if dir := t.get(pythonFolders); dir != nil {
		for name, n := range dir.children {
			if strings.HasPrefix(name, "python3") && n.mode.IsDir() {
				roots = append(roots, "/"+pythonFolders+"/"+name)
			}
		}
	}
	if len(roots) == 0 || t.get("usr/bin/python3") == nil {
		return nil, nil
	}
	file := filepath.Join(work, "plain.erofs")
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer os.Remove(file)
	if err := errors.Join(t.write(f, work), f.Close()); err != nil {
		return nil, err
	}
	return run(ctx, file, append([]string{"python3", "-I", "-S", "-B", "-c", bytecodeProgram}, slices.Sorted(slices.Values(roots))...))
}

// addBytecode adds the files in what bytecode.py wrote.
func (t *tree) addBytecode(b []byte) error {
	for len(b) > 0 {
		if len(b) < 8 {
			return io.ErrUnexpectedEOF
		}
		name, size := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
		b = b[8:]
		if uint64(name)+uint64(size) > uint64(len(b)) {
			return io.ErrUnexpectedEOF
		}
		p, data := string(b[:name]), b[name:name+size]
		b = b[name+size:]
		if err := t.addCompiled(p, data); err != nil {
			return fmt.Errorf("bytecode %.200q: %w", p, err)
		}
	}
	return nil
}

// addCompiled adds the bytecode /DIR/__pycache__/NAME.TAG.pyc of /DIR/NAME.py.
func (t *tree) addCompiled(name string, data []byte) error {
	p, err := cleanPath(strings.TrimPrefix(name, "/"))
	if err != nil {
		return err
	}
	cache, file := path.Split(p)
	dir, folder := path.Split(path.Clean(cache))
	module, tag, _ := strings.Cut(strings.TrimSuffix(file, ".pyc"), ".cpython-")
	source := t.get(dir + module + ".py")
	if folder != "__pycache__" || file != module+".cpython-"+tag+".pyc" || strings.Trim(tag, "0123456789") != "" ||
		source == nil || source.mode.IsDir() {
		return errors.New("not of a module of the image")
	}
	off, err := t.store(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	return t.add(p, &node{mode: fs.FileMode(0o644), off: off, size: int64(len(data))})
}
