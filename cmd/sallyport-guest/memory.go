package main

import (
	"strconv"
	"strings"
	"time"
)

// The kernel kills for memory when it finds nothing to give up. A program that has
// nearly all of it in what cannot be given up leaves so little for its own code,
// which is read again and again, that this can take minutes. So it is looked for.
const (
	memoryLook = 250 * time.Millisecond
	memoryFull = 3        // looks in a row
	memoryRoom = 50       // a part in so many of the whole is no room
	memoryLeft = 20 << 20 // nor is more than this: a program within its limit leaves what process 1 is granted
)

// watchMemory ends the sandbox where its memory has no room for a while. It
// returns when over is closed.
func (m *machine) watchMemory(over <-chan struct{}) {
	for full := 0; ; {
		select {
		case <-over:
			return
		case <-time.After(memoryLook):
		}
		if m.renewed.Swap(false) {
			continue // what was just copied has something else to do
		}
		if !m.noRoom() {
			full = 0
			continue
		}
		if full++; full >= memoryFull && m.setGroup("cgroup.kill", "1") == nil {
			m.starved.Store(true)
			return
		}
	}
}

func (m *machine) noRoom() bool {
	most, err := strconv.ParseInt(m.groupFile("memory.max"), 10, 64)
	if err != nil {
		return false
	}
	room := min(max(most/memoryRoom, 4<<20), memoryLeft)
	if now, _ := strconv.ParseInt(m.groupFile("memory.current"), 10, 64); now < most-room {
		return false
	}
	held := int64(0)
	for line := range strings.Lines(m.groupFile("memory.stat")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "anon" || name == "shmem" || name == "kernel" {
			n, _ := strconv.ParseInt(value, 10, 64)
			held += n
		}
	}
	return held >= most-room
}
