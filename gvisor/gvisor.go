// Package gvisor runs one program in one gVisor sandbox and destroys it.
//
// Read Host.Run first. A sandbox has a read-only EROFS root, one sized tmpfs
// behind all its writable folders, no network interface but lo, a cgroup of its
// own, and no file of the host: what to run arrives over a pipe (see payload)
// and is read by sallyport-init, the sandbox's process 1.
//
// The run ends when its main process ends. Processes that it left behind have
// another 200 ms (see sallyport-init), then everything is killed. A limit is
// enforced outside the program's reach: memory and CPU by the cgroup of the
// whole sandbox (its tmpfs counts as memory), processes by the sandbox's kernel,
// disk by the tmpfs, time by this package. Nothing here ever falls back to a
// weaker way of running.
package gvisor

// Programs that Host runs; they lie beside each other.
const (
	RuntimeProgram = "sallyport-runsc"
	InitProgram    = "sallyport-init"
)
