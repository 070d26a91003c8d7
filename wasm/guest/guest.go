// Package guest is what runs in the child of package wasm: it compiles one module,
// or runs one. It trusts its orders and nothing of the module; whatever the module
// makes of this process, its cage holds it.
//
// Both are told what to do by words and descriptors:
//
//	compile          the module on Module; on Report: the cache key, the machine
//	                 code in pieces, then Done, or Failed
//	run MEMORY DISK  an Entry on Module; on Report: Ready; then the request on
//	                 Orders as package payload has it, ended by Go; then Artifact,
//	                 Data and LeftOut records and an Exit, or Failed
package guest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/tier/payload"
)

// Descriptors that the child inherits.
const (
	Module = 3
	Report = 4
	Orders = 5
)

// The words that say what to do.
const (
	Compile = "compile"
	Run     = "run"
)

// API is the one set of functions that modules may import.
const API = wasi_snapshot_preview1.ModuleName

// The flags of an Exit, after its uint32 code.
const (
	Trapped      = 1 << iota // the module did what no module may; Code is TrapCode
	MemoryDenied             // it was refused more memory
	DiskDenied               // something did not fit on its disk
)

// TrapCode is the exit code of a module that trapped: that of an abort.
const TrapCode = 134

// The reasons of a Failed, a uint32 before its text.
const (
	BadModule uint32 = iota + 1 // it cannot be run here, whoever tries
	BadEntry                    // the compiled code does not fit this machine or program
	BadOrders                   // files that do not fit, for example
	TooLarge                    // it needs more memory than it may have from the start
)

// A failure ends the child.
type failure struct {
	why uint32
	err error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func fail(why uint32, format string, args ...any) error {
	return &failure{why, fmt.Errorf(format, args...)}
}

// Main does what the words say, and returns the process's status.
func Main(args []string) int {
	report := os.NewFile(Report, "report")
	err := work(args, report)
	if err == nil {
		return 0
	}
	f, ok := errors.AsType[*failure](err)
	if !ok {
		fmt.Fprintln(os.Stderr, "sallyport-wasm:", err)
		return 2
	}
	text := err.Error()
	text = text[:min(len(text), maxWords)]
	_, _ = report.Write(payload.Append(nil, payload.Failed, append(payload.AppendUint32(nil, f.why), text...))) // nobody may listen
	return 1
}

// maxWords bounds what is said of a failure.
const maxWords = 4 << 10

func work(args []string, report io.Writer) error {
	module, err := mapped(Module)
	if err != nil {
		return err
	}
	switch {
	case len(args) == 1 && args[0] == Compile:
		return compile(module, report)
	case len(args) == 3 && args[0] == Run:
		memory, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil {
			return err
		}
		disk, err := strconv.ParseInt(args[2], 10, 64)
		if err != nil {
			return err
		}
		return run(module, memory, disk, report)
	}
	return errors.New("this program is started by sallyport-sandboxd")
}

// mapped is what a file holds. Children of one entry share its pages.
func mapped(fd int) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size == 0 {
		return nil, err
	}
	return unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED)
}

// An engine is a runtime that has the functions of WASI.
type engine struct {
	wazero.Runtime
	code *code
	api  wazero.CompiledModule
}

// newEngine makes a runtime that keeps compiled code in c. Time is bounded from
// outside: asking at each turn of a loop would only slow modules down.
func newEngine(ctx context.Context, c *code) (*engine, error) {
	cache, err := c.cache()
	if err != nil {
		return nil, err
	}
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(api.CoreFeaturesV2).WithCompilationCache(cache).WithDebugInfoEnabled(false))
	have, err := wasi_snapshot_preview1.NewBuilder(r).Compile(ctx)
	if err != nil {
		return nil, err
	}
	return &engine{r, c, have}, nil
}

// An Entry is a module with its machine code, as one file: the key (32 bytes), the
// module's size (uint64), the module, the code.
const entryHead = 32 + 8

// AppendEntryHead begins an Entry.
func AppendEntryHead(b, key []byte, size int) []byte {
	return binary.LittleEndian.AppendUint64(append(b, key...), uint64(size))
}

func splitEntry(b []byte) (c *code, module []byte, err error) {
	if len(b) < entryHead {
		return nil, nil, fail(BadEntry, "the entry is too short")
	}
	size := binary.LittleEndian.Uint64(b[32:])
	rest := b[entryHead:]
	if size > uint64(len(rest)) {
		return nil, nil, fail(BadEntry, "the entry is cut off")
	}
	return &code{key: [32]byte(b), have: rest[size:]}, rest[:size], nil
}
