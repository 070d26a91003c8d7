package main

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/gomaxprocs"
)

// showLimits changes the command line of the boot process so that programs see
// the limits that the sandbox's id ends in ("-c" and a number of processors, "-m"
// and bytes) in place of what the host has: V8 sizes its heap by the memory,
// OpenBLAS and others start a thread for each processor. Enforcement is the
// cgroup's, not this.
func showLimits(args []string) []string {
	boot, at := slices.Index(args, "boot"), slices.Index(args, "--total-memory")
	if boot < 0 || at < boot || at+1 >= len(args) || slices.Contains(args, cpuNumber) {
		return args
	}
	id := args[len(args)-1]
	cpus, memory, ok := strings.Cut(id[strings.LastIndex(id, "-c")+1:], "-m")
	n, err := strconv.Atoi(strings.TrimPrefix(cpus, "c"))
	if _, bad := strconv.ParseUint(memory, 10, 63); !ok || err != nil || bad != nil || n < 1 {
		return args
	}
	args = slices.Clone(args)
	args[at+1] = memory
	return slices.Insert(args, at, cpuNumber, strconv.Itoa(min(n, runtime.NumCPU())))
}

const cpuNumber = "--cpu-num"

// workOnAll lets the sandbox's kernel itself use all processors, as it does when
// programs see all. Alone on one, it would put itself to sleep at each system
// call.
func workOnAll(args []string) {
	if at := slices.Index(args, cpuNumber); at >= 0 {
		n, _ := strconv.Atoi(args[at+1])
		gomaxprocs.Add(max(0, runtime.NumCPU()-n))
		alone = n == 1
	}
}

// alone says that programs see one processor.
var alone bool

// threadsAtOnce bounds how many threads of one process run at the same time.
//
//go:linkname threadsAtOnce gvisor.dev/gvisor/pkg/sentry/platform/systrap.maxSysmsgThreads
var threadsAtOnce int

// oneAtATime holds for processes what they see: who sees one processor may leave
// out what keeps threads from each other.
// Preconditions: the platform is ready, and no program runs.
func oneAtATime() {
	if alone && threadsAtOnce > 1 {
		threadsAtOnce = 1
	}
}
