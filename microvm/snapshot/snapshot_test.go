package snapshot

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/microvm/mux"
	"sallyport.dev/sallyport/microvm/vmm"
)

const size = 256 * page

func made() Made {
	return Made{
		VMM:      vmm.Identity{Name: "qemu", Accel: "tcg", Version: "7.2", Machine: "microvm", CPU: "max", Append: "a"},
		Protocol: 1, Kernel: "k", Image: "i", Memory: size, Program: "python3", Leads: true,
	}
}

func sample(t *testing.T) vmm.Snapshot {
	t.Helper()
	memory, err := NewMemory(size)
	if err != nil {
		t.Fatal(err)
	}
	state, err := NewState()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = memory.WriteAt(bytes.Repeat([]byte("page"), page/4), 17*page)
	_, _ = memory.WriteAt([]byte("last"), size-4)
	_, _ = state.Write([]byte("devices"))
	s := vmm.Snapshot{Memory: memory, State: state}
	t.Cleanup(s.Close)
	return s
}

func content(t *testing.T, f *os.File) string {
	t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestKeepAndLoad(t *testing.T) {
	s, of := Store{t.TempDir()}, sample(t)
	if _, _, err := s.Load(made()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	m := Manifest{Made: made(), Facts: []byte("facts"), Streams: mux.State{Streams: []mux.StreamState{{ID: 1, Credit: 2, Allowed: 3}}}}
	if err := s.Keep(m, of); err != nil {
		t.Fatal(err)
	}
	got, again, err := s.Load(made())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if content(t, again.Memory) != content(t, of.Memory) || content(t, again.State) != "devices" || string(got.Facts) != "facts" || got.Streams.Streams[0] != m.Streams.Streams[0] {
		t.Error("what was kept is not what is loaded")
	}
	for name, f := range map[string]*os.File{"memory": again.Memory, "state": again.State} {
		if err := Sealed(f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := f.WriteAt([]byte("x"), 0); err == nil {
			t.Errorf("the %s of a snapshot was written to", name)
		}
	}
	if _, err := of.Memory.WriteAt([]byte("x"), 0); err != nil || Sealed(of.Memory) == nil {
		t.Error("control: a file that is not sealed passes for one that is", err)
	}
}

// A snapshot that was made with anything else is not used, and one that was
// tampered with is not, either.
func TestRefuses(t *testing.T) {
	for name, alter := range map[string]func(*Made){
		"VMM":         func(m *Made) { m.VMM.Name = "firecracker" },
		"accelerator": func(m *Made) { m.VMM.Accel = "kvm" },
		"version":     func(m *Made) { m.VMM.Version = "7.3" },
		"machine":     func(m *Made) { m.VMM.Machine += ",x=on" },
		"processor":   func(m *Made) { m.VMM.CPU = "host" },
		"command":     func(m *Made) { m.VMM.Append = "b" },
		"protocol":    func(m *Made) { m.Protocol++ },
		"kernel":      func(m *Made) { m.Kernel = "l" },
		"image":       func(m *Made) { m.Image = "j" },
		"memory":      func(m *Made) { m.Memory += page },
		"program":     func(m *Made) { m.Program = "" },
		"way":         func(m *Made) { m.Leads = false },
	} {
		s := Store{t.TempDir()}
		if err := s.Keep(Manifest{Made: made()}, sample(t)); err != nil {
			t.Fatal(err)
		}
		want := made()
		alter(&want)
		if _, _, err := s.Load(want); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
		from, _ := s.folder(made())
		to, _ := s.folder(want)
		if err := os.Rename(from, to); err != nil { // it lies where the other would
			t.Fatal(err)
		}
		if _, _, err := s.Load(want); err == nil || !strings.Contains(err.Error(), "made with another") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, file := range []string{memoryFile, stateFile} {
		s := Store{t.TempDir()}
		if err := s.Keep(Manifest{Made: made()}, sample(t)); err != nil {
			t.Fatal(err)
		}
		dir, _ := s.folder(made())
		f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.WriteAt([]byte{'X'}, 3)
		f.Close()
		if _, _, err := s.Load(made()); err == nil || !strings.Contains(err.Error(), "not what was stored") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestForgets(t *testing.T) {
	s, of := Store{t.TempDir()}, sample(t)
	unfinished := filepath.Join(s.Dir, ".new-1")
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(unfinished, time.Now(), time.Now().Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	for i := range kept + 3 {
		m := made()
		m.Protocol = uint32(i)
		if err := s.Keep(Manifest{Made: m}, of); err != nil {
			t.Fatal(err)
		}
	}
	if all, _ := filepath.Glob(filepath.Join(s.Dir, "*")); len(all) != kept {
		t.Errorf("%d snapshots are kept, not %d", len(all), kept)
	}
	if _, err := os.Stat(unfinished); err == nil {
		t.Error("what was never finished stays")
	}
}
