package kernel

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"path"
	"strings"
)

// wanted are the modules that a guest needs: how it finds its devices, its channel,
// its disk, its randomness, and its file systems.
var wanted = []string{"virtio_mmio", "virtio_console", "virtio_blk", "virtio_rng", "vmw_vsock_virtio_transport", "erofs", "overlay"}

// A module is one driver, by the name that other modules know it by.
type module struct {
	file    string // NAME.ko
	content []byte
}

// moduleName is what a module file is called elsewhere.
func moduleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(path.Base(file), ".ko"), "-", "_")
}

// order returns the wanted modules with all that they need, each after what it
// needs. What is built into the kernel is left out.
func order(have map[string]module, builtin map[string]bool, wanted []string) ([]module, error) {
	var out []module
	done := map[string]bool{}
	var need func(name string, trail []string) error
	need = func(name string, trail []string) error {
		if done[name] || builtin[name] {
			return nil
		}
		m, ok := have[name]
		if !ok {
			return fmt.Errorf("the kernel has no module %q", name)
		}
		if len(trail) > 32 {
			return fmt.Errorf("modules need each other: %s", strings.Join(trail, " → "))
		}
		more, err := dependencies(m.content)
		if err != nil {
			return fmt.Errorf("module %s: %w", m.file, err)
		}
		for _, n := range more {
			if err := need(n, append(trail, name)); err != nil {
				return err
			}
		}
		if !done[name] {
			done[name] = true
			out = append(out, m)
		}
		return nil
	}
	for _, name := range wanted {
		if err := need(name, nil); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// dependencies reads which modules a module needs from its section .modinfo, which
// is a list of NAME=VALUE, each ended by a zero.
func dependencies(module []byte) (names []string, err error) {
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := f.Section(".modinfo")
	if s == nil || s.Size > uint64(len(module)) {
		return nil, errors.New("it does not say what it is")
	}
	info, err := s.Data()
	if err != nil {
		return nil, err
	}
	for field := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := bytes.CutPrefix(field, []byte("depends=")); ok && len(list) > 0 {
			for name := range strings.SplitSeq(string(list), ",") {
				names = append(names, strings.ReplaceAll(name, "-", "_"))
			}
		}
	}
	return names, nil
}

// pack makes the kernel's part of the initramfs: folders to mount over, and the
// modules with the order in which they are loaded.
func pack(modules []module) []byte {
	var b, order bytes.Buffer
	w := &cpio{w: &b}
	for _, dir := range []string{"dev", "proc", "sys", "mods"} {
		w.add(dir, 0o040755, nil)
	}
	for _, m := range modules {
		fmt.Fprintln(&order, m.file)
		w.add("mods/"+m.file, 0o100644, m.content)
	}
	w.add("mods/order", 0o100644, order.Bytes())
	w.close()
	return b.Bytes()
}
