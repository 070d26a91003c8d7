package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// monitorPatience bounds how long QEMU may take for one answer.
const monitorPatience = 20 * time.Second

// maxAnswer bounds one line of QEMU, which may be the guest's by now.
const maxAnswer = 1 << 20

// A monitor talks QMP: lines of JSON.
type monitor struct {
	mu    sync.Mutex
	conn  net.Conn
	lines *bufio.Scanner
}

func newMonitor(c net.Conn) *monitor {
	m := &monitor{conn: c, lines: bufio.NewScanner(c)}
	m.lines.Buffer(make([]byte, 4096), maxAnswer)
	return m
}

// greet waits for QEMU and agrees on the protocol.
func (m *monitor) greet(ctx context.Context) error {
	end := m.within(ctx)
	defer end()
	if !m.lines.Scan() {
		return m.over()
	}
	_, err := m.exchange("qmp_capabilities", nil)
	return err
}

// within takes the monitor, and has the end of ctx end what waits.
func (m *monitor) within(ctx context.Context) (leave func()) {
	m.mu.Lock()
	_ = m.conn.SetDeadline(time.Now().Add(monitorPatience)) // a closed one says so when it is used
	stop := context.AfterFunc(ctx, func() { _ = m.conn.SetDeadline(time.Unix(1, 0)) })
	return func() {
		stop()
		m.mu.Unlock()
	}
}

func (m *monitor) over() error {
	if err := m.lines.Err(); err != nil {
		return fmt.Errorf("QEMU does not answer: %w", err)
	}
	return errors.New("QEMU has ended")
}

func (m *monitor) call(ctx context.Context, what string, args map[string]any) (json.RawMessage, error) {
	leave := m.within(ctx)
	defer leave()
	return m.exchange(what, args)
}

// exchange asks, and skips events until the answer.
// Preconditions: m.mu is held.
func (m *monitor) exchange(what string, args map[string]any) (json.RawMessage, error) {
	q := map[string]any{"execute": what}
	if args != nil {
		q["arguments"] = args
	}
	b, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	if _, err := m.conn.Write(append(b, '\n')); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	for m.lines.Scan() {
		var a struct {
			Event  string          `json:"event"`
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Desc string `json:"desc"`
			} `json:"error"`
		}
		if err := json.Unmarshal(m.lines.Bytes(), &a); err != nil {
			return nil, fmt.Errorf("%s: QEMU's answer: %w", what, err)
		}
		switch {
		case a.Event != "":
		case a.Error != nil:
			return nil, fmt.Errorf("%s: %.200s", what, a.Error.Desc)
		default:
			return a.Return, nil
		}
	}
	return nil, m.over()
}

func (m *monitor) ask(ctx context.Context, what string, args map[string]any, to any) error {
	b, err := m.call(ctx, what, args)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, to)
}
