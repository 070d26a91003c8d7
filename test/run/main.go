// Run runs `go test -json` and shows what a person wants to see: one line for
// each package, the output of what failed, the reason of each skip, and at the
// end "N passed, N failed" alone on a line. It counts tests that have no
// subtests. It exits with 1 if anything failed or nothing ran.
//
//	go run ./test/run -- [arguments of go test]
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	os.Exit(run(os.Stdout, args))
}

func run(out io.Writer, args []string) int {
	cmd := exec.CommandContext(context.Background(), "go", slices.Concat([]string{"test", "-json"}, args)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		fmt.Fprintln(out, err)
		return 1
	}
	// A Ctrl-C reaches go test by itself; we stay to tell how far it came.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(out, err)
		return 1
	}
	r := newReport(out)
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		r.line(line)
		if err != nil {
			break
		}
	}
	return r.close(cmd.Wait())
}
