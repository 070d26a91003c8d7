package main

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"os"
	"runtime/debug"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/runsc/boot/filter"
)

// The sandbox process confines itself with a seccomp filter that gVisor
// compiles anew at each start, which takes longer than all else that the start
// does. The filters for the options that we use were compiled beforehand, by
// gVisor's own code, into seccomp.bin (see precompiled_test.go, which fails when
// the file is not exactly what this version of gVisor compiles).
//
// A file made by another version of gVisor, or options that are not in it, only
// cost time: gVisor then compiles the filter as always.

//go:embed seccomp.bin
var compiledFilters []byte

// programs is where gVisor looks for precompiled filters. Bazel builds of
// upstream fill it; a build with the go command leaves it empty.
//
//go:linkname programs gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var programs map[string]precompiledseccomp.Program

// usePrecompiledFilters registers the filters for a sandbox process.
func usePrecompiledFilters() {
	version, ps, err := decodeFilters(compiledFilters)
	if err != nil || version == "" || version != gvisorVersion() {
		return
	}
	filter.GetPrecompiled("") // makes the map
	for _, p := range ps {
		for _, at := range p.VarOffsets[selfPID] {
			p.Bytecode32[at] = uint32(os.Getpid())
		}
		delete(p.VarOffsets, selfPID)
		programs[p.Name] = p
	}
}

// selfPID names the places that hold the process's own id. gVisor's platforms
// write the id of the process that compiles into the filter (the systrap one
// allows rt_tgsigqueueinfo to itself only), and do not know it as a variable:
// left alone, the filter would allow the wrong process and refuse ours.
const selfPID = "sallyport_self_pid"

func gvisorVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == "gvisor.dev/gvisor" && m.Replace == nil {
			return m.Version
		}
	}
	return ""
}

var errFilters = errors.New("damaged filters")

// decodeFilters reads what encodeFilters wrote: all numbers are uint32, little
// endian; strings and lists have their length first.
func decodeFilters(b []byte) (version string, ps []precompiledseccomp.Program, err error) {
	r := filterReader{b: b}
	version = r.text()
	for range r.count() {
		p := precompiledseccomp.Program{Name: r.text(), VarOffsets: map[string][]int{}}
		for range r.count() {
			p.Bytecode32 = append(p.Bytecode32, r.number())
		}
		for range r.count() {
			name := r.text()
			p.VarOffsets[name] = nil // one that was optimised away still counts
			for range r.count() {
				at := r.number()
				if int(at) >= len(p.Bytecode32) {
					return "", nil, errFilters
				}
				p.VarOffsets[name] = append(p.VarOffsets[name], int(at))
			}
		}
		if r.bad {
			break
		}
		ps = append(ps, p)
	}
	if r.bad || len(r.b) > 0 {
		return "", nil, errFilters
	}
	return version, ps, nil
}

// A filterReader reads numbers, counts and strings; where the bytes do not
// suffice it turns bad and returns zeros.
type filterReader struct {
	b   []byte
	bad bool
}

func (r *filterReader) number() uint32 {
	if len(r.b) < 4 {
		r.b, r.bad = nil, true
		return 0
	}
	n := binary.LittleEndian.Uint32(r.b)
	r.b = r.b[4:]
	return n
}

// count returns how many items follow: never more than there are bytes.
func (r *filterReader) count() int {
	n := r.number()
	if int64(n) > int64(len(r.b)) {
		r.b, r.bad = nil, true
		return 0
	}
	return int(n)
}

func (r *filterReader) text() string {
	n := r.count()
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}
