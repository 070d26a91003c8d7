package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// cgroupsEnv lists the cgroup folders to join, separated by colons. Joining
// ourselves, before any thread or child exists that matters, leaves no moment
// in which a sandbox runs outside its cgroups.
const cgroupsEnv = "SALLYPORT_CGROUPS"

// oomScore has the kernel of a host that runs out of memory choose a sandbox
// before the gateway and the sandbox host, which have 0. Children inherit it.
const oomScore = "500"

func joinCgroups() error {
	list := os.Getenv(cgroupsEnv)
	if list == "" {
		return nil
	}
	os.Unsetenv(cgroupsEnv)
	for dir := range strings.SplitSeq(list, ":") {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("joining the sandbox's cgroup: %w", err)
		}
	}
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(oomScore), 0); err != nil {
		return fmt.Errorf("putting the sandbox before others where memory runs out: %w", err)
	}
	return nil
}
