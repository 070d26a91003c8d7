package microvm

import (
	"os"
	"path/filepath"
	"strings"
)

// VMMs are the processes of a host's machines, as its control groups have them.
func (h *Host) VMMs() (pids []string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.machines {
		b, err := os.ReadFile(filepath.Join(m.group.Dirs()[0], "cgroup.procs"))
		if err != nil {
			return nil, err
		}
		pids = append(pids, strings.Fields(string(b))...)
	}
	return pids, nil
}
