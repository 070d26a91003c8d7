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
	return nil
}
