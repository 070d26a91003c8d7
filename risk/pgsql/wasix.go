package pgsql

import (
	"context"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// The parser is C: it reports a syntax error by longjmp. Compiled for WASIX,
// that becomes two calls to the host, which keeps, for each setjmp, where the
// program was and what its C stack held. The other WASIX calls are for threads
// and signals, of which there are none; they stop the instance.

const wasixModule = "wasix_32v1"

// A jump is one setjmp.
type jump struct {
	snapshot experimental.Snapshot
	valueAt  uint32 // where setjmp's return value goes
	stackAt  uint32
	stack    []byte
}

type jumps struct{ taken []jump }

type jumpsKey struct{}

// withStacks prepares ctx for one call into the parser. The value is for the
// host functions below only: wazero has no other way to reach them.
func withStacks(ctx context.Context) context.Context {
	return context.WithValue(experimental.WithSnapshotter(ctx), jumpsKey{}, &jumps{}) //nolint:forbidigo // see above
}

// checkpoint is stack_checkpoint(snapshot *{u64, u128}, value *u64) errno.
func checkpoint(ctx context.Context, mod api.Module, args []uint64) {
	handleAt, valueAt := uint32(args[0]), uint32(args[1])
	list, ok := ctx.Value(jumpsKey{}).(*jumps)
	if !ok {
		panic("setjmp outside a parse")
	}
	bottom := uint32(mod.ExportedGlobal("__stack_pointer").Get())
	top := uint32(mod.ExportedGlobal("__heap_base").Get())
	view, ok := mod.Memory().Read(bottom, top-bottom)
	if !ok {
		panic("the C stack is out of bounds")
	}
	list.taken = append(list.taken, jump{
		snapshot: experimental.GetSnapshotter(ctx).Snapshot(),
		valueAt:  valueAt, stackAt: bottom, stack: append([]byte(nil), view...),
	})
	if !mod.Memory().WriteUint64Le(handleAt, uint64(len(list.taken)-1)) || !mod.Memory().WriteUint64Le(valueAt, 0) {
		panic("setjmp writes out of bounds")
	}
	args[0] = 0
}

// restore is stack_restore(snapshot *{u64, u128}, value u64).
func restore(ctx context.Context, mod api.Module, args []uint64) {
	list, ok := ctx.Value(jumpsKey{}).(*jumps)
	if !ok {
		panic("longjmp outside a parse")
	}
	handle, ok := mod.Memory().ReadUint64Le(uint32(args[0]))
	if !ok || handle >= uint64(len(list.taken)) {
		panic("longjmp to nowhere")
	}
	to := list.taken[handle]
	pointer, ok := mod.ExportedGlobal("__stack_pointer").(api.MutableGlobal)
	if !ok || !mod.Memory().Write(to.stackAt, to.stack) || !mod.Memory().WriteUint64Le(to.valueAt, args[1]) {
		panic("longjmp writes out of bounds")
	}
	pointer.Set(uint64(to.stackAt))
	args[0] = 0
	to.snapshot.Restore(args[:1])
}

func processID(_ context.Context, mod api.Module, args []uint64) {
	mod.Memory().WriteUint32Le(uint32(args[0]), 1)
	args[0] = 0
}

func hostModule(ctx context.Context, rt wazero.Runtime) error {
	const i32, i64 = api.ValueTypeI32, api.ValueTypeI64
	none := func(name string) api.GoModuleFunc {
		return func(context.Context, api.Module, []uint64) { panic(name + " is not provided") }
	}
	b := rt.NewHostModuleBuilder(wasixModule)
	for _, f := range []struct {
		name    string
		call    api.GoModuleFunc
		in, out []api.ValueType
	}{
		{"stack_checkpoint", checkpoint, []api.ValueType{i32, i32}, []api.ValueType{i32}},
		{"stack_restore", restore, []api.ValueType{i32, i64}, nil},
		{"proc_id", processID, []api.ValueType{i32}, []api.ValueType{i32}},
		{"callback_signal", none("callback_signal"), []api.ValueType{i32, i32}, nil},
		{"thread_signal", none("thread_signal"), []api.ValueType{i32, i32}, []api.ValueType{i32}},
		{"thread_exit", none("thread_exit"), []api.ValueType{i32}, nil},
		{"futex_wait", none("futex_wait"), []api.ValueType{i32, i32, i32, i32}, []api.ValueType{i32}},
		{"futex_wake", none("futex_wake"), []api.ValueType{i32, i32}, []api.ValueType{i32}},
		{"futex_wake_all", none("futex_wake_all"), []api.ValueType{i32, i32}, []api.ValueType{i32}},
	} {
		b.NewFunctionBuilder().WithGoModuleFunction(f.call, f.in, f.out).Export(f.name)
	}
	_, err := b.Instantiate(ctx)
	return err
}
