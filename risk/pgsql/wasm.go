package pgsql

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/wasilibs/wazero-helpers/allocator"

	"sallyport.dev/sallyport/pause"
)

const (
	parseTime   = 2 * time.Second // of one text; beyond it, the text is refused
	maxParses   = 20_000          // of one instance, which is then replaced
	maxAtOnce   = 8               // instances that work, and that are kept
	memoryPages = 2048            // of 64 KiB: 128 MiB at most for one instance
	keptMemory  = 32 << 20        // an instance that grew beyond is not kept: it never shrinks
)

// errLate says that a text was not parsed in its time.
var errLate = errors.New("the parse took too long, or was called off")

// A syntaxError is what PostgreSQL's parser said against a text.
type syntaxError struct{ message string }

func (e *syntaxError) Error() string { return e.message }

// A machine runs the parser. Each parse has an instance of its own, so a text
// that breaks one breaks nothing else.
type machine struct {
	cache string        // directory of compiled code, "" for none
	turns chan struct{} // one for each instance that works

	once    sync.Once
	err     error
	runtime wazero.Runtime
	module  wazero.CompiledModule

	mu   sync.Mutex
	idle []*instance
}

type instance struct {
	mod                             api.Module
	parses                          int
	malloc, free, parse, freeResult api.Function
}

func newMachine(cache string) *machine {
	return &machine{cache: cache, turns: make(chan struct{}, maxAtOnce)}
}

// start compiles the parser, once.
func (m *machine) start(ctx context.Context) error {
	m.once.Do(func() {
		if len(wasmModule) == 0 {
			m.err = errors.New("the PostgreSQL parser is not in this build")
			return
		}
		if m.cache != "" {
			if m.err = m.compile(ctx, m.cache); m.err == nil {
				return
			}
		}
		m.err = m.compile(ctx, "") // a cache that cannot be used costs time, no more
	})
	return m.err
}

func (m *machine) compile(ctx context.Context, dir string) error {
	config := wazero.NewRuntimeConfig().
		WithCoreFeatures(api.CoreFeaturesV2 | experimental.CoreFeaturesThreads).
		WithMemoryLimitPages(memoryPages).
		WithDebugInfoEnabled(false). // the cache would hold half a million source positions, and each is a read of its own
		WithCloseOnContextDone(true)
	if dir != "" {
		cache, err := wazero.NewCompilationCacheWithDir(dir)
		if err != nil {
			return err
		}
		config = config.WithCompilationCache(cache)
	}
	// What is compiled outlives ctx, which only bounds the caller's wait.
	ctx = context.WithoutCancel(ctx)
	rt := wazero.NewRuntimeWithConfig(ctx, config)
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, rt); err != nil {
		return errors.Join(err, rt.Close(ctx))
	}
	if err := hostModule(ctx, rt); err != nil {
		return errors.Join(err, rt.Close(ctx))
	}
	module, err := rt.CompileModule(ctx, wasmModule)
	if err != nil {
		return errors.Join(err, rt.Close(ctx))
	}
	m.runtime, m.module = rt, module
	return nil
}

func (m *machine) take(ctx context.Context) (*instance, error) {
	if err := m.start(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	if n := len(m.idle); n > 0 {
		in := m.idle[n-1]
		m.idle = m.idle[:n-1]
		m.mu.Unlock()
		return in, nil
	}
	m.mu.Unlock()

	ctx = experimental.WithMemoryAllocator(context.WithoutCancel(ctx), allocator.NewNonMoving())
	mod, err := m.runtime.InstantiateModule(ctx, m.module,
		wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize"))
	if err != nil {
		return nil, err
	}
	if _, err := mod.ExportedFunction("pg_query_init").Call(ctx); err != nil {
		return nil, errors.Join(err, mod.Close(ctx))
	}
	return &instance{
		mod:        mod,
		malloc:     mod.ExportedFunction("malloc"),
		free:       mod.ExportedFunction("free"),
		parse:      mod.ExportedFunction("pg_query_parse"),
		freeResult: mod.ExportedFunction("pg_query_free_parse_result"),
	}, nil
}

func (m *machine) put(in *instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if in.parses < maxParses && len(m.idle) < maxAtOnce && in.mod.Memory().Size() <= keptMemory {
		m.idle = append(m.idle, in)
		return
	}
	_ = in.mod.Close(context.Background())
}

// tree returns the parse tree of text as JSON. A *syntaxError means that
// PostgreSQL would refuse the text; errLate, that there was no time for it; any
// other error, that the parser broke.
func (m *machine) tree(ctx context.Context, text string) ([]byte, error) {
	select {
	case m.turns <- struct{}{}:
		defer func() { <-m.turns }()
	case <-ctx.Done():
		return nil, errLate
	}
	in, err := m.take(ctx)
	if err != nil {
		return nil, err
	}
	// The clock starts with the parse: making the parser ready is not the text's fault.
	ctx, cancel := pause.Within(ctx, parseTime)
	defer cancel()
	out, err := in.run(withStacks(ctx), text)
	if err != nil && ctx.Err() != nil {
		err = errLate
	}
	if _, refused := errors.AsType[*syntaxError](err); err == nil || refused {
		m.put(in)
	} else {
		_ = in.mod.Close(context.Background())
	}
	return out, err
}

// run calls struct {char *tree, *stderr; PgQueryError *error} pg_query_parse(const char*).
func (in *instance) run(ctx context.Context, text string) ([]byte, error) {
	in.parses++
	const resultSize = 12
	mem := in.mod.Memory()
	block, err := in.malloc.Call(ctx, uint64(resultSize+len(text)+1))
	if err != nil {
		return nil, err
	}
	result, input := uint32(block[0]), uint32(block[0])+resultSize
	if result == 0 || !mem.Write(input, append([]byte(text), 0)) {
		return nil, errors.New("the parser is out of memory")
	}
	if _, err := in.parse.Call(ctx, uint64(result), uint64(input)); err != nil {
		return nil, err
	}
	header, ok := mem.Read(result, resultSize)
	if !ok {
		return nil, errors.New("the parser's answer is out of bounds")
	}
	treeAt, errorAt := binary.LittleEndian.Uint32(header), binary.LittleEndian.Uint32(header[8:])
	var out []byte
	var refusal error
	if errorAt != 0 {
		messageAt, _ := mem.ReadUint32Le(errorAt)
		message, err := cString(mem, messageAt)
		if err != nil {
			return nil, err
		}
		refusal = &syntaxError{message: string(message)}
	} else if out, err = cString(mem, treeAt); err != nil {
		return nil, err
	}
	if _, err := in.freeResult.Call(ctx, uint64(result)); err != nil {
		return nil, err
	}
	if _, err := in.free.Call(ctx, uint64(result)); err != nil {
		return nil, err
	}
	return out, refusal
}

func cString(mem api.Memory, at uint32) ([]byte, error) {
	if at == 0 || at >= mem.Size() {
		return nil, fmt.Errorf("the parser's answer points to %d, out of bounds", at)
	}
	buf, ok := mem.Read(at, mem.Size()-at)
	if !ok {
		return nil, errors.New("the parser's answer is out of bounds")
	}
	for i, c := range buf {
		if c == 0 {
			return append([]byte(nil), buf[:i]...), nil
		}
	}
	return nil, errors.New("the parser's answer has no end")
}
