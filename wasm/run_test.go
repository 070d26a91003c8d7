package wasm_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/wasm"
	"sallyport.dev/sallyport/wasm/wasmtest"
)

func request(code []byte, args ...string) tier.Request {
	return tier.Request{Argv: append([]string{"module"}, args...), Module: &tier.Module{Language: wasm.Language, Code: code}, Limits: sallyport.Limits{Timeout: 2 * time.Minute}.Or(sallyport.DefaultLimits())}
}

func run(t testing.TB, h *wasm.Host, r tier.Request) tier.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	res, err := h.Run(ctx, r)
	if err != nil {
		t.Fatalf("%q: %v", r.Argv, whole(err))
	}
	return res
}

// whole shows what an error keeps for the log.
func whole(err error) string {
	if e, ok := errors.AsType[*sallyport.Error](err); ok && e.Err != nil {
		return e.Message + " (" + e.Hint + "): " + e.Err.Error()
	}
	return err.Error()
}

// program does what its first argument says.
const program = `package main

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

var held [][]byte

//go:wasmimport wasi_snapshot_preview1 sock_accept
func accept(fd, flags int32, to *uint32) uint32

//go:wasmimport wasi_snapshot_preview1 sock_send
func send(fd int32, data *byte, n, flags int32, sent *uint32) uint32

//go:wasmimport wasi_snapshot_preview1 sock_shutdown
func shutdown(fd, how int32) uint32

func main() {
	args := append(os.Args[1:], "", "", "")
	n, _ := strconv.Atoi(args[1])
	switch args[0] {
	case "echo":
		b, _ := io.ReadAll(os.Stdin)
		os.Stdout.Write(b)
		os.Stderr.WriteString(strings.Join(os.Args, "|") + "\n" + os.Getenv("GIVEN"))
	case "exit":
		os.Exit(n)
	case "spin":
		os.Stdout.WriteString("so far\n")
		for {
		}
	case "sleep":
		os.Stdout.WriteString("so far\n")
		time.Sleep(time.Hour)
	case "take":
		for range n {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			held = append(held, b)
		}
		fmt.Println("taken")
	case "flood":
		w := bufio.NewWriterSize(os.Stdout, 1<<20)
		line := strings.Repeat("x", 1023) + "\n"
		for range n << 10 {
			w.WriteString(line)
		}
		w.Flush()
		fmt.Fprintln(os.Stderr, "done")
	case "files":
		files()
	case "disk":
		b := make([]byte, 1<<20)
		f, err := os.Create("/tmp/big")
		for i := 0; err == nil && i < n; i++ {
			_, err = f.Write(b)
		}
		fmt.Println(err)
	case "walk":
		for _, p := range args[1:] {
			if p == "" {
				continue
			}
			b, err := os.ReadFile(p)
			fmt.Printf("%s %q %v\n", p, b, err != nil)
		}
		filepath.Walk("/", func(p string, _ os.FileInfo, err error) error {
			fmt.Println("/", p, err)
			return nil
		})
	case "sockets":
		var got, sent uint32
		for fd := range int32(16) {
			fmt.Println(accept(fd, 0, &got) != 0, send(fd, nil, 0, 0, &sent) != 0, shutdown(fd, 3) != 0)
		}
	case "facts":
		b := make([]byte, 16)
		rand.Read(b)
		fmt.Printf("%x %d\n", b, time.Now().UnixMilli())
	}
}

func files() {
	in, err := os.ReadFile("data/in.csv")
	fmt.Printf("%q %v\n", in, err)
	abs, err := os.ReadFile("/home/agent/data/in.csv")
	fmt.Printf("%q %v\n", abs, err)
	fmt.Println(os.WriteFile("data/out", in, 0o644), os.Rename("data/out", "moved"), os.Remove("moved"))
	_, err = os.Stat("moved")
	fmt.Println(os.IsNotExist(err))
	fmt.Println(os.MkdirAll("a/b/c", 0o755), os.RemoveAll("a"))
	os.WriteFile(os.Getenv("SALLYPORT_OUTPUT")+"/plot.png", []byte("png"), 0o644)
	os.MkdirAll(os.Getenv("SALLYPORT_OUTPUT")+"/deep", 0o755)
	os.WriteFile(os.Getenv("SALLYPORT_OUTPUT")+"/deep/t.txt", make([]byte, 700<<10), 0o644)
	below := os.Getenv("SALLYPORT_OUTPUT")
	for range 17 { // its path is too long for a result
		below += "/" + strings.Repeat("z", 250)
		os.Mkdir(below, 0o755)
	}
	os.WriteFile(below+"/z", []byte("too deep"), 0o644)
}
`

func TestStreamsAndExit(t *testing.T) {
	h, _ := wasmtest.Open(t)
	code := wasmtest.Go(t, program)
	r := request(code, "echo", "a b", "ü")
	r.Stdin, r.Env = []byte("in\x00\xff\n"), []string{"GIVEN=x"}
	res := run(t, h, r)
	if string(res.Stdout) != "in\x00\xff\n" || string(res.Stderr) != "module|echo|a b|ü\nx" || res.ExitCode != 0 || res.Signal != "" || res.KilledBy != "" || res.LimitsHit != nil {
		t.Errorf("stdout %q, stderr %q, %+v", res.Stdout, res.Stderr, res)
	}
	for _, n := range []string{"256", "-1"} { // not 0, and no number that no other tier gives
		if res := run(t, h, request(code, "exit", n)); res.ExitCode != 255 || res.Receipt.Exit != "exited" {
			t.Errorf("exit %s: %d, %q", n, res.ExitCode, res.Receipt.Exit)
		}
	}
	for _, n := range []string{"0", "1", "7", "125", "255"} {
		if res := run(t, h, request(code, "exit", n)); n != strconv.Itoa(res.ExitCode) || res.KilledBy != "" || res.Receipt.Exit != "exited" {
			t.Errorf("exit %s: %d, %q, %q", n, res.ExitCode, res.KilledBy, res.Receipt.Exit)
		}
	}
}

// What a module does that no module may is an abort, with the reason.
func TestTraps(t *testing.T) {
	h, _ := wasmtest.Open(t)
	for name, c := range map[string]struct {
		m    wasmtest.Module
		says string
	}{
		"unreachable":     {wasmtest.Module{Pages: 1, Body: []byte{wasmtest.Unreachable}}, "unreachable"},
		"out of bounds":   {wasmtest.Module{Pages: 1, Body: slices.Concat(wasmtest.I32(1<<20), []byte{wasmtest.Load, 2, 0, wasmtest.Drop})}, "out of bounds memory access"},
		"division":        {wasmtest.Module{Pages: 1, Body: slices.Concat(wasmtest.I32(1), wasmtest.I32(0), []byte{wasmtest.DivS, wasmtest.Drop})}, "integer divide by zero"},
		"deep recursion":  {wasmtest.Module{Pages: 1, Body: []byte{wasmtest.Call, 0}}, "stack overflow"},
		"at its start":    {wasmtest.Module{Pages: 1, Start: true, Body: []byte{wasmtest.Unreachable}}, "unreachable"},
		"data beyond end": {wasmtest.Module{Pages: 1, Data: make([]byte, 65537)}, "out of bounds memory access"},
	} {
		t.Run(name, func(t *testing.T) {
			res := run(t, h, request(c.m.Bytes()))
			if res.ExitCode != 134 || res.Signal != "SIGABRT" || res.KilledBy != "" || res.Receipt.Exit != "signaled" || !strings.Contains(string(res.Stderr), c.says) {
				t.Errorf("exit %d %s, killed by %q, receipt %q, stderr %q; want %q", res.ExitCode, res.Signal, res.KilledBy, res.Receipt.Exit, res.Stderr, c.says)
			}
		})
	}
}

// What cannot be run says why, whoever built it; the next call is none the worse.
func TestNotForHere(t *testing.T) {
	h, _ := wasmtest.Open(t)
	good := wasmtest.Module{Pages: 1}.Bytes()
	for name, c := range map[string]struct {
		code []byte
		says string
	}{
		"nothing":             {nil, "empty"},
		"a script":            {[]byte("#!/bin/sh\n"), "not a WebAssembly module"},
		"a component":         {[]byte("\x00asm\x0d\x00\x01\x00"), "wasip1"},
		"cut off":             {good[:len(good)-3], "not valid"},
		"unknown function":    {wasmtest.Module{Import: "launch", Pages: 1}.Bytes(), "wasi_snapshot_preview1.launch"},
		"unknown set":         {wasmtest.Module{Import: "log", Set: "env", Pages: 1}.Bytes(), "env.log"},
		"another signature":   {wasmtest.Module{Import: "fd_write", Pages: 1}.Bytes(), "fd_write with another signature"},
		"a library":           {wasmtest.Module{Export: "add", Pages: 1}.Bytes(), "no function _start"},
		"an invalid body":     {wasmtest.Module{Pages: 1, Body: []byte{wasmtest.Drop}}.Bytes(), "not valid"},
		"too much at first":   {wasmtest.Module{Pages: 16384}.Bytes(), "1024 MiB"},
		"beyond all memory":   {wasmtest.Module{Pages: 1 << 30}.Bytes(), "not valid"},
		"a table of billions": {wasmtest.Module{Pages: 1, Table: 1 << 31}.Bytes(), "not valid"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.Run(t.Context(), request(c.code))
			if sallyport.CodeOf(err) != sallyport.Invalid || !errors.Is(err, sallyport.ErrNotExecuted) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; want %q", err, c.says)
			}
		})
	}
	if res := run(t, h, request(good)); res.ExitCode != 0 {
		t.Errorf("a good module after them: %+v", res)
	}
}
