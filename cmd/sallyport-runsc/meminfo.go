package main

import (
	"slices"
	"strconv"
	"strings"
)

// showMemoryLimit replaces the size of the host's memory on the command line of
// the boot process with the limit that the sandbox's id ends in ("-m" and
// bytes), so that /proc/meminfo tells programs what they really have: V8 sizes
// its heap by it. Enforcement is the cgroup's, not this.
func showMemoryLimit(args []string) []string {
	boot, at := slices.Index(args, "boot"), slices.Index(args, "--total-memory")
	if boot < 0 || at < boot || at+1 >= len(args) {
		return args
	}
	id := args[len(args)-1]
	_, limit, ok := strings.Cut(id, "-m")
	if _, err := strconv.ParseUint(limit, 10, 63); !ok || err != nil {
		return args
	}
	args = slices.Clone(args)
	args[at+1] = limit
	return args
}
