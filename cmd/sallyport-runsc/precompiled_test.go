package main

import (
	"bytes"
	"encoding/binary"
	"flag"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	_ "gvisor.dev/gvisor/pkg/sentry/platform/platforms"
	"gvisor.dev/gvisor/runsc/boot/filter/config"
)

var update = flag.Bool("update", false, "write seccomp.bin anew")

//go:linkname rules gvisor.dev/gvisor/runsc/boot/filter/config.rules
func rules(opt config.Options, vars precompiledseccomp.Values) (allowed, denied seccomp.SyscallRules)

// compileFilters does what upstream's build does, for the options that we use.
func compileFilters(t *testing.T) (ps []precompiledseccomp.Program) {
	for _, name := range []string{"systrap", "ptrace"} {
		p, err := platform.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range p.PrecompiledSeccompInfo() {
			opt := config.Options{Platform: info}
			program, err := precompiledseccomp.Precompile(opt.ConfigKey(), slices.Sorted(maps.Keys(opt.Vars())), func(v precompiledseccomp.Values) *seccomp.Program {
				allowed, denied := rules(opt, v)
				return &seccomp.Program{
					RuleSets: []seccomp.RuleSet{{Rules: denied.Copy()}, {Rules: allowed.Copy(), Action: seccomp.Allow}},
					Options:  config.SeccompOptions(opt),
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			markPID(t, program)
			ps = append(ps, program)
		}
	}
	return ps
}

// markPID finds the one place that holds this process's id.
func markPID(t *testing.T, p precompiledseccomp.Program) {
	for at, v := range p.Bytecode32 {
		if v == uint32(os.Getpid()) {
			p.VarOffsets[selfPID] = append(p.VarOffsets[selfPID], at)
			p.Bytecode32[at] = 0
		}
	}
	if n := len(p.VarOffsets[selfPID]); n != 1 {
		t.Fatalf("%s: the process id %d appears %d times, want once; if it is some other constant too, run again", p.Name, os.Getpid(), n)
	}
}

func encodeFilters(version string, ps []precompiledseccomp.Program) (b []byte) {
	number := func(n int) { b = binary.LittleEndian.AppendUint32(b, uint32(n)) }
	text := func(s string) { number(len(s)); b = append(b, s...) }
	text(version)
	number(len(ps))
	for _, p := range ps {
		text(p.Name)
		number(len(p.Bytecode32))
		for _, v := range p.Bytecode32 {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
		number(len(p.VarOffsets))
		for _, name := range slices.Sorted(maps.Keys(p.VarOffsets)) {
			text(name)
			number(len(p.VarOffsets[name]))
			for _, at := range p.VarOffsets[name] {
				number(at)
			}
		}
	}
	return b
}

// pinnedVersion asks the go command: a test binary has no build information of
// its dependencies.
func pinnedVersion(t *testing.T) string {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "gvisor.dev/gvisor").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// The filters in the file are exactly those that this gVisor compiles.
func TestFiltersAreCurrent(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("skipped: the committed filters are those of amd64; elsewhere gVisor compiles its own")
	}
	want := encodeFilters(pinnedVersion(t), compileFilters(t))
	if *update {
		if err := os.WriteFile("seccomp.bin", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(want, compiledFilters) {
		t.Fatal("seccomp.bin is not what the pinned gVisor compiles; run `go test ./cmd/sallyport-runsc -run TestFiltersAreCurrent -update`")
	}
}

func FuzzDecodeFilters(f *testing.F) {
	f.Add([]byte{})
	f.Add(encodeFilters("v", []precompiledseccomp.Program{{Name: "p", Bytecode32: []uint32{1, 2, 3}, VarOffsets: map[string][]int{"x": {0, 2}}}}))
	f.Add(encodeFilters("v", []precompiledseccomp.Program{{Name: "p", Bytecode32: []uint32{1}, VarOffsets: map[string][]int{"x": {9}}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, ps, err := decodeFilters(b)
		if err != nil {
			return
		}
		if v2, ps2, err := decodeFilters(encodeFilters(v, ps)); err != nil || v2 != v || len(ps2) != len(ps) {
			t.Fatalf("%q, %d programs → %q, %d, %v", v, len(ps), v2, len(ps2), err)
		}
	})
}
