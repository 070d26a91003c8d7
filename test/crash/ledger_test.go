package crash

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// The process that knows what really happened. It writes each line it is sent
// to a file, syncs it, and only then confirms it.

func socketOf(dir string) string { return filepath.Join(dir, "effects.sock") }
func ledgerOf(dir string) string { return filepath.Join(dir, "effects") }

func keepLedger(dir string) error {
	f, err := os.OpenFile(ledgerOf(dir), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", socketOf(dir))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	go func() { // ends with the test, which holds the other end of stdin
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(0)
	}()
	var mu sync.Mutex
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			lines := bufio.NewScanner(c)
			for lines.Scan() {
				mu.Lock()
				_, err := f.WriteString(lines.Text() + "\n")
				err = errors.Join(err, f.Sync())
				mu.Unlock()
				if err != nil {
					fmt.Fprintln(os.Stderr, "ledger:", err)
					os.Exit(1)
				}
				if _, err := c.Write([]byte("ok\n")); err != nil {
					return
				}
			}
		}()
	}
}

// A witness tells the ledger's process.
type witness struct {
	c  net.Conn
	in *bufio.Reader
}

func newWitness(dir string) (*witness, error) {
	c, err := net.Dial("unix", socketOf(dir))
	if err != nil {
		return nil, err
	}
	return &witness{c: c, in: bufio.NewReader(c)}, nil
}

// tell returns when the line is on disk.
func (w *witness) tell(words ...any) error {
	if _, err := fmt.Fprintln(w.c, words...); err != nil {
		return err
	}
	_, err := w.in.ReadString('\n')
	return err
}

// What the ledger says.
type history struct {
	effects  map[string]int  // by key: how often it was executed
	finished map[string]bool // keys whose outcome the store confirmed
	decided  map[string]bool // tickets whose decision the store confirmed → approved
}

func readHistory(text string) (history, error) {
	h := history{effects: map[string]int{}, finished: map[string]bool{}, decided: map[string]bool{}}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 2 && words[0] == "effect":
			h.effects[words[1]]++
		case len(words) == 2 && words[0] == "finished":
			h.finished[words[1]] = true
		case len(words) == 3 && words[0] == "decided":
			h.decided[words[1]] = words[2] == "true"
		default:
			return h, fmt.Errorf("the ledger has a line %q", line)
		}
	}
	return h, nil
}
