package pgsql

import (
	_ "unsafe" // for go:linkname

	_ "github.com/wasilibs/go-pgquery/parser" // links the parser's Wasm module
)

// wasmModule is PostgreSQL's own parser, compiled to Wasm, as the pinned module
// go-pgquery carries it. That package keeps the bytes to itself and compiles
// them anew for each concurrent caller, in memory only (a second of CPU each);
// here they are compiled once and the machine code is cached on disk. A build
// with a version that moved the bytes leaves this empty, and New says so.
//
//go:linkname wasmModule github.com/wasilibs/go-pgquery/internal/wasm.LibPGQuery
var wasmModule []byte
