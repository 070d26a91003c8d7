package kernel

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/test/stage"
)

// object is an ELF file with nothing but a section .modinfo.
func object(info string) []byte {
	const header, names = 64, "\x00.modinfo\x00.shstrtab\x00"
	var b bytes.Buffer
	word := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) } // a buffer takes all
	section := func(name, kind uint32, off, size uint64) {
		word(name)
		word(kind)
		word([]uint64{0, 0, off, size})
		word([]uint32{0, 0})
		word([]uint64{1, 0})
	}
	sections := uint64(header + len(info) + len(names))
	b.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9))
	word([]uint16{1, 62})
	word(uint32(1))
	word([]uint64{0, 0, sections})
	word(uint32(0))
	word([]uint16{header, 0, 0, 64, 3, 2})
	b.WriteString(info + names)
	section(0, 0, 0, 0)
	section(1, 1, header, uint64(len(info)))
	section(10, 3, header+uint64(len(info)), uint64(len(names)))
	return b.Bytes()
}

func needs(depends string) module {
	return module{content: object("license=GPL\x00depends=" + depends + "\x00name=x\x00")}
}

func TestOrder(t *testing.T) {
	have := map[string]module{
		"blk": needs("virtio,virtio-ring"), "virtio": needs("virtio_ring"), "virtio_ring": needs(""),
		"erofs": needs("libcrc"), "loop": needs("pool"), "pool": needs("loop"), "broken": {content: []byte("no ELF")},
		"plain": {content: object("license=GPL\x00")}, "dangling": needs("nowhere"),
	}
	for name, m := range have {
		m.file = name + ".ko"
		have[name] = m
	}
	builtin := map[string]bool{"libcrc": true}
	for _, tt := range []struct{ wanted, want string }{
		{"blk", "virtio_ring.ko virtio.ko blk.ko"},
		{"erofs blk virtio", "erofs.ko virtio_ring.ko virtio.ko blk.ko"},
		{"libcrc", ""},
		{"plain", "plain.ko"},
		{"gone", `error: the kernel has no module "gone"`},
		{"dangling", `error: the kernel has no module "nowhere"`},
		{"broken", "error: module broken.ko"},
		{"loop", "error: modules need each other"},
	} {
		got, err := order(have, builtin, strings.Fields(tt.wanted))
		var said []string
		for _, m := range got {
			said = append(said, m.file)
		}
		if err != nil {
			said = []string{"error: " + err.Error()}
		}
		if s := strings.Join(said, " "); s != tt.want && (err == nil || !strings.HasPrefix(s, tt.want)) {
			t.Errorf("%s: %s, want %s", tt.wanted, s, tt.want)
		}
	}
}

// Of a package only what a guest needs is read, and no more than a kernel has.
func TestContents(t *testing.T) {
	c := contents{release: "6.1.0-1", modules: map[string]module{}, builtin: map[string]bool{}}
	take := func(name string, kind byte, size int64, text string) error {
		return c.take(&tar.Header{Name: name, Typeflag: kind, Size: size}, strings.NewReader(text))
	}
	for _, f := range [][2]string{
		{"./boot/vmlinuz-6.1.0-1", "kernel"}, {"./boot/vmlinuz-6.1.0-2", "another"},
		{"./lib/modules/6.1.0-1/kernel/drivers/virtio-rng.ko", "rng"}, {"./lib/modules/6.1.0-2/kernel/x.ko", "another"},
		{"./lib/modules/6.1.0-1/modules.builtin", "kernel/a/crc32c-generic.ko\nkernel/b.ko\n"}, {"./etc/passwd", "x"},
	} {
		if err := take(f[0], tar.TypeReg, int64(len(f[1])), f[1]); err != nil {
			t.Error(f[0], err)
		}
	}
	if string(c.image) != "kernel" || len(c.modules) != 1 || c.modules["virtio_rng"].file != "virtio-rng.ko" || len(c.builtin) != 2 || !c.builtin["crc32c_generic"] {
		t.Errorf("%q %v %v", c.image, c.modules, c.builtin)
	}
	if take("./boot/vmlinuz-6.1.0-1", tar.TypeReg, maxKernel+1, "") == nil || take("./lib/modules/6.1.0-1/x.ko", tar.TypeReg, maxModule+1, "") == nil {
		t.Error("the size is not bounded")
	}
	if err := take("./lib/modules/6.1.0-1/link.ko", tar.TypeSymlink, 0, ""); err != nil || len(c.modules) != 1 {
		t.Error("a link was taken", err)
	}
}

// bzImage makes one whose payload is this block, and which says that it unpacks to size.
func bzImage(block []byte, size int) []byte {
	head := make([]byte, 1024)
	head[0x1f1] = 1
	copy(head[0x202:], "HdrS\x0f\x02")
	payload := binary.LittleEndian.AppendUint32([]byte{0x02, 0x21, 0x4c, 0x18}, uint32(len(block)))
	payload = binary.LittleEndian.AppendUint32(append(payload, block...), uint32(size))
	binary.LittleEndian.PutUint32(head[0x24c:], uint32(len(payload)))
	return append(head, payload...)
}

func TestVmlinux(t *testing.T) {
	elf := []byte("\x40\x7fELF")                        // four literals
	copied := "\x4f\x7fELF\x04\x00\xff\x02\x30abc"      // … 4+15+255+2 bytes of what was 4 before, three literals
	want := strings.Repeat("\x7fELF", 1+276/4) + "abc"  // 276 copied
	long := "\xf0\x01\x7fELF" + strings.Repeat("x", 12) // 15+1 literals
	for name, tt := range map[string]struct {
		image []byte
		want  string // "" for an error
	}{
		"literals":          {bzImage(elf, 4), "\x7fELF"},
		"copies":            {bzImage([]byte(copied), len(want)), want},
		"many literals":     {bzImage([]byte(long), 16), "\x7fELF" + strings.Repeat("x", 12)},
		"more than it says": {bzImage([]byte(copied), len(want)-1), ""},
		"less than it says": {bzImage([]byte(copied), len(want)+1), ""},
		"no ELF":            {bzImage([]byte("\x40abcd"), 4), ""},
		"before the start":  {bzImage([]byte("\x4f\x7fELF\x05\x00\xff\x02\x30abc"), len(want)), ""},
		"no distance":       {bzImage([]byte("\x4f\x7fELF\x00\x00\xff\x02\x30abc"), len(want)), ""},
		"cut in a length":   {bzImage([]byte("\x4f\x7fELF\x04\x00\xff"), len(want)), ""},
		"too large":         {bzImage(elf, maxVmlinux+1), ""},
		"no header":         {make([]byte, 4096), ""},
		"short":             {[]byte("x"), ""},
		"payload outside":   {bzImage(elf, 4)[:1026], ""},
		"not LZ4":           {bytes.Replace(bzImage(elf, 4), []byte{0x02, 0x21, 0x4c}, []byte{0xfd, '7', 'z'}, 1), ""},
	} {
		got, err := vmlinux(tt.image)
		if (err != nil) != (tt.want == "") || string(got) != tt.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// Debian's own kernel is read, whole: its last segment ends inside of it.
func TestVmlinuxOfDebian(t *testing.T) {
	cache := image.CacheDir(os.Getenv, os.Geteuid())
	k, err := Describe(cache, Debian)
	if err != nil {
		stage.Absent(t, "Debian's guest kernel is not in the cache; `make build` puts it there")
	}
	_, programs := cacheOf(t)
	g, err := k.Open(cache, programs)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	b, err := ELF(g.Image)
	if err != nil || !bytes.Contains(b, fmt.Appendf(nil, "Linux version %s ", k.Release)) {
		t.Errorf("%d bytes do not say that they are Linux %s, %v", len(b), k.Release, err)
	}
}

// A configuration that the kernel's source does not take is not compiled.
func TestLost(t *testing.T) {
	wanted := "# why\nCONFIG_A=y\n\nCONFIG_B=4\n"
	if got := lost(wanted, "CONFIG_B=4\n# CONFIG_C is not set\nCONFIG_A=y\n"); got != nil {
		t.Error(got)
	}
	if got := lost(wanted, "# CONFIG_A is not set\nCONFIG_B=8\n"); len(got) != 2 {
		t.Error(got)
	}
}

func FuzzVmlinux(f *testing.F) {
	f.Add(bzImage([]byte("\x4f\x7fELF\x04\x00\xff\x02\x30abc"), 283))
	f.Add(bzImage([]byte("\x40\x7fELF"), 4))
	f.Fuzz(func(t *testing.T, image []byte) {
		if len(image) > 0x250 && binary.LittleEndian.Uint32(image[len(image)-4:]) > 1<<20 {
			return // takes memory, not thought
		}
		if got, err := vmlinux(image); err == nil && !bytes.HasPrefix(got, []byte("\x7fELF")) {
			t.Errorf("%q", got)
		}
	})
}

func FuzzDependencies(f *testing.F) {
	f.Add(object("depends=a,b-c\x00"))
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, module []byte) {
		names, err := dependencies(module)
		if err != nil && names != nil {
			t.Error(names, err)
		}
	})
}
