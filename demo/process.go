package demo

import (
	"os"
	"os/exec"
	"time"
)

// A process is one that the demo started and will end.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
}

func start(c *exec.Cmd) (*process, error) {
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = patience
	if err := c.Start(); err != nil {
		return nil, err
	}
	p := &process{c, make(chan struct{})}
	go func() { _ = c.Wait(); close(p.ended) }()
	return p, nil
}

// patience is how long a process may take to end by itself.
const patience = 20 * time.Second

// stop ends the process and waits for it. It may be called on nil, and twice.
func (p *process) stop() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}
