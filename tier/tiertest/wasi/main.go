// Command wasi is what the suite of tiers runs where a tier runs modules of WASI:
// built for wasip1, it does in a sandbox what its first argument says.
package main

import (
	"bytes"
	"crypto/rand"
	"io"
	mrand "math/rand"
	"os"
	"strconv"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		os.Exit(2)
	}
	args := append(os.Args[2:], "", "")
	switch os.Args[1] {
	case "say":
		say(args[0])
	case "exit":
		os.Exit(number(args[0]))
	case "hang":
		say(args[0])
		time.Sleep(time.Hour)
	case "spin":
		say(args[0])
		for { //nolint:staticcheck // it is to be ended from outside
		}
	case "work":
		x := 0
		for i := range 100_000_000 {
			x += i ^ x
		}
		say("done" + strconv.Itoa(x)[:0])
	case "pause":
		d, _ := time.ParseDuration(args[0])
		time.Sleep(d)
		say(args[1])
	case "fill":
		fill(args[0], number(args[1]))
	case "alternate":
		for i := range number(args[0]) {
			say("o" + strconv.Itoa(i+1))
			_, _ = os.Stderr.WriteString("e" + strconv.Itoa(i+1) + "\n")
		}
	case "count":
		n, _ := io.Copy(io.Discard, os.Stdin)
		say(strconv.FormatInt(n, 10))
	case "take":
		take(number(args[0]))
	case "recurse":
		say(strconv.Itoa(recurse(0)))
	case "canary":
		canary()
	case "unique":
		unique()
	case "reach":
		reach()
	default:
		os.Exit(2)
	}
}

func say(line string) { _, _ = os.Stdout.WriteString(line + "\n") }

func number(s string) int { n, _ := strconv.Atoi(s); return n }

func fill(text string, times int) {
	chunk := bytes.Repeat([]byte(text), 1024)
	for ; times > 1024; times -= 1024 {
		_, _ = os.Stdout.Write(chunk)
	}
	_, _ = os.Stdout.Write(chunk[:times*len(text)])
}

// take takes so many MiB, a page at a time.
func take(mib int) {
	for range mib {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		held = append(held, b)
	}
}

var held [][]byte

func recurse(n int) int {
	var pad [1024]byte
	pad[n%1024] = byte(n)
	return recurse(n+1) + int(pad[n%512]) //nolint:staticcheck // until the stack is full
}

// canary looks for what another run left in every place that can be written, and
// leaves it.
func canary() {
	found := "["
	for _, p := range places() {
		if _, err := os.Stat(p); err == nil {
			found += p
		}
	}
	for _, p := range places() { // some may be one place
		_ = os.WriteFile(p, []byte("x"), 0o600)
	}
	if os.Getenv("CANARY") != "" {
		found += "CANARY"
	}
	_ = os.Setenv("CANARY", "1")
	say(found + "] " + hex() + " " + strconv.FormatInt(mrand.Int63(), 10))
}

func places() []string {
	return []string{"canary", "/canary", "/tmp/canary", "/home/agent/canary", "/home/output/canary", "../canary"}
}

func unique() {
	say(strconv.FormatFloat(float64(time.Now().UnixMicro())/1e6, 'f', 6, 64) + "|||")
	say(hex() + "|" + strconv.FormatInt(mrand.Int63(), 10))
}

func hex() (s string) {
	b := make([]byte, 32)
	_, _ = rand.Read(b)
	for _, c := range b {
		s += strconv.FormatInt(int64(c)+256, 16)[1:]
	}
	return s
}
