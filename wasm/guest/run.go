package guest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/experimental/sysfs"
	"github.com/tetratelabs/wazero/sys"

	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/payload"
	"sallyport.dev/sallyport/wasm/memfs"
)

// pageSize is WebAssembly's.
const pageSize = 64 << 10

// A program is a module with what it is given.
type program struct {
	engine   *engine
	compiled wazero.CompiledModule
	memory   *memory
	disk     *memfs.Disk
	home     *memfs.Folder
	output   *memfs.Folder
	config   wazero.ModuleConfig
}

// A mount shows the module a folder.
type mount struct {
	at     string
	folder *memfs.Folder
}

// run gets a module ready, waits for a request, and runs it.
func run(entry []byte, memory, disk int64, report io.Writer) error {
	ctx := context.Background()
	p, err := load(ctx, entry, memory, disk)
	if err != nil {
		return err
	}
	if _, err := report.Write(payload.Append(nil, payload.Ready, nil)); err != nil {
		return err
	}
	if err := p.take(os.NewFile(Orders, "orders")); err != nil {
		return err
	}
	code, flags, err := p.start(ctx)
	if err != nil {
		return err
	}
	if err := p.leave(report); err != nil {
		return err
	}
	_, err = report.Write(payload.Append(nil, payload.Exit, append(payload.AppendUint32(nil, code), flags)))
	time.Sleep(untilKilled)
	return err
}

// untilKilled is more than the host takes to look at what a run took, which goes
// with the child, and to kill it.
const untilKilled = time.Minute

// load makes a program from an entry.
func load(ctx context.Context, entry []byte, limit, disk int64) (*program, error) {
	c, module, err := splitEntry(entry)
	if err != nil {
		return nil, err
	}
	p := &program{memory: &memory{limit: uint64(limit / pageSize * pageSize)}, disk: memfs.NewDisk(disk)}
	if p.engine, err = newEngine(ctx, c); err != nil {
		return nil, err
	}
	if p.compiled, err = p.engine.CompileModule(ctx, module); err != nil || c.missed {
		return nil, fail(BadEntry, "the compiled module cannot be used: %w", err)
	}
	if _, err := p.engine.InstantiateModule(ctx, p.engine.api, wazero.NewModuleConfig()); err != nil {
		return nil, err
	}
	p.home, p.output = p.disk.NewFolder(), p.disk.NewFolder()
	// C and Rust begin in /, Go in $PWD: both are the working folder.
	folders := wazero.NewFSConfig()
	for _, m := range []mount{{"/", p.home}, {tier.WorkDir, p.home}, {payload.OutputDir, p.output}, {"/tmp", p.disk.NewFolder()}} {
		folders = folders.(sysfs.FSConfig).WithSysFSMount(m.folder, m.at)
	}
	p.config = wazero.NewModuleConfig().WithName("").WithFSConfig(folders).
		WithStdin(os.Stdin).WithStdout(os.Stdout).WithStderr(os.Stderr).
		WithSysWalltime().WithSysNanotime().WithSysNanosleep().WithRandSource(rand.Reader)
	return p, nil
}

// take reads a request.
func (p *program) take(orders io.Reader) error {
	var argv []string
	var file string
	var content []byte
	put := func() error {
		if file == "" {
			return nil
		}
		if errno := p.home.Put(file, content); errno != 0 {
			return fail(BadOrders, "%s: %s", file, noRoom(p.disk, errno))
		}
		file, content = "", nil
		return nil
	}
	for {
		k, data, err := payload.Read(orders)
		if err != nil {
			return err
		}
		if k == payload.Data {
			content = append(content, data...)
			continue
		}
		if err := put(); err != nil {
			return err
		}
		switch k {
		case payload.Arg:
			argv = append(argv, string(data))
		case payload.Env:
			name, value, _ := strings.Cut(string(data), "=")
			p.config = p.config.WithEnv(name, value)
		case payload.File:
			file = string(data)
		case payload.Folder:
			if errno := p.home.PutFolder(string(data)); errno != 0 {
				return fail(BadOrders, "%s: %s", data, noRoom(p.disk, errno))
			}
		case payload.Go:
			p.config = p.config.WithArgs(argv...)
			return nil
		default:
			return fmt.Errorf("orders hold %q", k)
		}
	}
}

func noRoom(d *memfs.Disk, err error) error {
	if d.Full {
		return errors.New("no room on the disk")
	}
	return err
}

// notThere ends wazero's words for an import of a table or a global, which it does
// not tell of before.
const notThere = "not instantiated"

// start runs the program to its end.
func (p *program) start(ctx context.Context) (code uint32, flags byte, failed error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *failure: // of Allocate
			failed = e
		default:
			panic(e)
		}
	}()
	_, err := p.engine.InstantiateModule(experimental.WithMemoryAllocator(ctx, p.memory), p.compiled, p.config)
	if p.memory.denied {
		flags |= MemoryDenied
	}
	if p.disk.Full {
		flags |= DiskDenied
	}
	if err == nil {
		return 0, flags, nil
	}
	if e, ok := errors.AsType[*sys.ExitError](err); ok {
		return e.ExitCode(), flags, nil
	}
	if strings.HasSuffix(err.Error(), notThere) {
		return 0, 0, fail(BadModule, "the module imports what is not here: %w; there is only %s", err, API)
	}
	text := strings.TrimPrefix(err.Error(), "module[] function[_start] failed: ")
	fmt.Fprintf(os.Stderr, "sallyport: the module trapped: %.*s\n", maxWords, text)
	return TrapCode, flags | Trapped, nil
}

// MaxLeftOut bounds how many files are told of that are not in a result.
const MaxLeftOut = 100

// leave reports the files of the output folder.
func (p *program) leave(report io.Writer) (err error) {
	left, room, more := payload.MaxArtifacts, int64(payload.MaxArtifactBytes), MaxLeftOut
	p.output.Each(func(path string, size int64, read func() []byte) bool {
		if len(path) > payload.MaxPath {
			return true
		}
		kind := payload.Artifact
		if left == 0 || size > room {
			kind = payload.LeftOut
			if more--; more < 0 {
				return false
			}
		}
		b := payload.Append(nil, kind, append(payload.AppendUint64(nil, uint64(size)), path...))
		if kind == payload.Artifact {
			left, room = left-1, room-size
			b = payload.Append(b, payload.Data, read())
		}
		_, err = report.Write(b)
		return err == nil
	})
	return err
}
