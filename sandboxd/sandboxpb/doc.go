// Package sandboxpb is the narrow protocol between a gateway and a sandbox host.
// The contract is sandbox.proto; the rest is generated from it.
package sandboxpb

// Needs protoc (package protobuf-compiler), protoc-gen-go v1.36.12 and
// protoc-gen-go-grpc v1.5.1 in PATH; the generated files are committed.
//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative sandbox.proto

// MaxMessage bounds one message: files, stdin and output of one run must fit.
const MaxMessage = 192 << 20
