package wasmtest

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
)

// A Module is put together by hand: what no toolchain would write.
type Module struct {
	Import   string // name of a function of Set, taken from i32 to nothing; "" for none
	Set      string // "" is WASI's
	Pages    uint32 // of memory, at first
	MaxPages uint32 // 0 for no bound of its own
	Table    uint32 // entries at first; 0 for no table
	Data     []byte // at address 0
	Body     []byte // instructions of _start; the function's locals are two i32
	Export   string // of the function; "" is _start
	Hidden   bool   // the memory is not exported
	Start    bool   // it runs when the module is made, too
}

// WASI is the set of functions that modules import.
const WASI = "wasi_snapshot_preview1"

// Instructions that tests use.
const (
	Unreachable = 0x00
	Loop        = 0x03
	End         = 0x0b
	Br          = 0x0c
	Call        = 0x10
	Drop        = 0x1a
	LocalGet    = 0x20
	LocalSet    = 0x21
	Load        = 0x28
	Grow        = 0x40
	Const       = 0x41
	DivS        = 0x6d
)

// Bytes is the module.
func (m Module) Bytes() []byte {
	b := []byte("\x00asm\x01\x00\x00\x00")
	types := [][]byte{{0x60, 1, 0x7f, 0}, {0x60, 0, 0}}
	b = section(b, 1, vector(types...))
	f := byte(0)
	if m.Import != "" {
		set := m.Set
		if set == "" {
			set = WASI
		}
		b = section(b, 2, vector(slices.Concat(text(set), text(m.Import), []byte{0, 0})))
		f = 1
	}
	b = section(b, 3, vector([]byte{1}))
	if m.Table > 0 {
		b = section(b, 4, vector(slices.Concat([]byte{0x70, 0}, number(m.Table))))
	}
	if m.MaxPages > 0 {
		b = section(b, 5, vector(slices.Concat([]byte{1}, number(m.Pages), number(m.MaxPages))))
	} else {
		b = section(b, 5, vector(slices.Concat([]byte{0}, number(m.Pages))))
	}
	name := m.Export
	if name == "" {
		name = "_start"
	}
	exports := [][]byte{slices.Concat(text(name), []byte{0, f})}
	if !m.Hidden {
		exports = append(exports, slices.Concat(text("memory"), []byte{2, 0}))
	}
	b = section(b, 7, vector(exports...))
	if m.Start {
		b = section(b, 8, []byte{f})
	}
	body := slices.Concat([]byte{1, 2, 0x7f}, m.Body, []byte{End})
	b = section(b, 10, vector(slices.Concat(number(uint32(len(body))), body)))
	if m.Data != nil {
		b = section(b, 11, vector(slices.Concat([]byte{0, Const, 0, End}, number(uint32(len(m.Data))), m.Data)))
	}
	return b
}

// I32 is an instruction with a signed number behind it.
func I32(n int32) []byte {
	b := []byte{Const}
	for {
		c := byte(n & 0x7f)
		n >>= 7
		if n == 0 && c&0x40 == 0 || n == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

func number(n uint32) (b []byte) {
	for n >= 0x80 {
		b = append(b, byte(n)|0x80)
		n >>= 7
	}
	return append(b, byte(n))
}

func text(s string) []byte { return append(number(uint32(len(s))), s...) }

func vector(all ...[]byte) []byte {
	return append(number(uint32(len(all))), slices.Concat(all...)...)
}

func section(b []byte, id byte, content []byte) []byte {
	return append(append(append(b, id), number(uint32(len(content)))...), content...)
}

// Digest is that of a module, in hex.
func Digest(code []byte) string {
	sum := sha256.Sum256(code)
	return hex.EncodeToString(sum[:])
}
