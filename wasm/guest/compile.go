package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"sallyport.dev/sallyport/tier/payload"
)

// compile compiles a module and reports the code, or what is wrong with it.
func compile(module []byte, report io.Writer) error {
	ctx := context.Background()
	c := &code{}
	e, err := newEngine(ctx, c)
	if err != nil {
		return err
	}
	if err := looksLike(module); err != nil {
		return err
	}
	compiled, err := e.CompileModule(ctx, module)
	if err != nil {
		return fail(BadModule, "the module is not valid: %w", err)
	}
	if err := e.check(compiled); err != nil {
		return err
	}
	if c.have == nil {
		return errors.New("there is no compiler for this processor")
	}
	b := payload.Append(nil, payload.Data, c.key[:])
	for part := range slices.Chunk(c.have, payload.MaxRecord) {
		if _, err := report.Write(payload.Append(b, payload.Data, part)); err != nil {
			return err
		}
		b = b[:0]
	}
	_, err = report.Write(payload.Append(b, payload.Done, nil))
	return err
}

// looksLike says what a file is that is no module.
func looksLike(b []byte) error {
	switch {
	case !bytes.HasPrefix(b, []byte("\x00asm")):
		return fail(BadModule, "the file is not a WebAssembly module: it begins with %.16q", b[:min(len(b), 8)])
	case bytes.HasPrefix(b[4:], []byte{0x0d, 0, 1, 0}):
		return fail(BadModule, "the file is a component (WASI preview 2); build it for wasip1")
	}
	return nil
}

// check refuses what could not start: it says what is missing.
func (e *engine) check(m wazero.CompiledModule) error {
	have := e.api.ExportedFunctions()
	var missing []string
	for _, f := range m.ImportedFunctions() {
		from, name, _ := f.Import()
		is, known := have[name]
		switch {
		case from != API || !known:
			missing = append(missing, from+"."+name)
		case !same(f, is):
			missing = append(missing, fmt.Sprintf("%s.%s with another signature", from, name))
		}
	}
	for _, mem := range m.ImportedMemories() {
		from, name, _ := mem.Import()
		missing = append(missing, fmt.Sprintf("the memory %s.%s", from, name))
	}
	if len(missing) > 0 {
		n := len(missing)
		slices.Sort(missing)
		return fail(BadModule, "the module imports what is not here: %s (%d in all); there is only %s", strings.Join(missing[:min(n, 8)], ", "), n, API)
	}
	start, ok := m.ExportedFunctions()["_start"]
	if !ok {
		return fail(BadModule, "the module exports no function _start: it is a library, not a program")
	}
	if len(start.ParamTypes())+len(start.ResultTypes()) > 0 {
		return fail(BadModule, "the module's function _start takes or returns values")
	}
	return nil
}

func same(a, b api.FunctionDefinition) bool {
	return slices.Equal(a.ParamTypes(), b.ParamTypes()) && slices.Equal(a.ResultTypes(), b.ResultTypes())
}
