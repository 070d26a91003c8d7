package wasm_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wasm/wasmtest"
)

// Whatever a module is, the host tells what became of it: it ran, or it is the
// module that is at fault. The next module runs as ever.
func FuzzModule(f *testing.F) {
	good := wasmtest.Module{Pages: 1, Import: "proc_exit", Body: slices.Concat(wasmtest.I32(9), []byte{wasmtest.Call, 0})}.Bytes()
	for _, m := range []wasmtest.Module{
		{Pages: 1, Body: []byte{wasmtest.Unreachable}},
		{Pages: 1, Table: 3, Data: []byte("data"), MaxPages: 9},
		{Pages: 1, Body: slices.Concat(wasmtest.I32(64), []byte{wasmtest.Grow, 0, wasmtest.Drop})},
		{Pages: 1, Body: []byte{wasmtest.Loop, 0x40, wasmtest.Br, 0, wasmtest.End}},
	} {
		f.Add(m.Bytes())
	}
	f.Add(good)
	f.Add(tables())
	f.Add([]byte("\x00asm\x01\x00\x00\x00\x0a\xff\xff\xff\xff\x0f"))
	f.Add([]byte("\x00asm\x01\x00\x00\x00\x01\x85\x80\x80\x80\x00\x01\x60\x00\x00"))
	f.Add([]byte("\x00asm\x01\x00\x00\x00\x05\x04\x01\x01\x80\x80\x04"))
	h, _ := wasmtest.Open(f)
	f.Fuzz(func(t *testing.T, code []byte) {
		r := request(code)
		r.Limits.Timeout, r.Limits.Memory = 200*time.Millisecond, 64<<20
		if res, err := h.Run(t.Context(), r); err != nil {
			if sallyport.CodeOf(err) != sallyport.Invalid || !errors.Is(err, sallyport.ErrNotExecuted) || strings.Contains(err.Error(), "without a word") {
				t.Errorf("%x: %v", code, err)
			}
		} else if res.ID == "" || res.Receipt.Tier != "wasm" {
			t.Errorf("%x: %+v", code, res)
		}
		if res := run(t, h, request(good)); res.ExitCode != 9 {
			t.Fatalf("a good module after it: %+v", res)
		}
	})
}
