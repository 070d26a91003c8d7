package gpu

import (
	"io/fs"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Capabilities of the driver that sandboxes have: to compute, and to ask what there
// is. Not graphics, video, profiling or what needs more than a program's rights.
const Capabilities = "compute,utility"

// Flags are those of the runtime for a sandbox with GPUs. The version of the driver
// is what was found, and not what gVisor would find later.
func (g GPU) Flags() []string {
	return []string{"--nvproxy=true", "--nvproxy-driver-version=" + g.Driver, "--nvproxy-allowed-driver-capabilities=" + Capabilities}
}

// Show puts the GPUs into the configuration of a sandbox, and the driver's
// libraries, which lie in from, at the folder at.
func (g GPU) Show(spec *specs.Spec, from, at string) {
	mode := fs.FileMode(0o666)
	var none uint32
	for _, d := range g.Devices {
		spec.Linux.Devices = append(spec.Linux.Devices, specs.LinuxDevice{
			Path: d.Path, Type: "c", Major: int64(d.Major), Minor: int64(d.Minor), FileMode: &mode, UID: &none, GID: &none,
		})
	}
	spec.Mounts = append(spec.Mounts, specs.Mount{Destination: at, Type: "bind", Source: from, Options: []string{"bind", "ro", "nosuid", "nodev"}})
	spec.Process.Env = append(spec.Process.Env, Env(at)...)
}

// Env is what programs with GPUs are told, and gVisor.
func Env(at string) []string {
	return []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=" + Capabilities, "LD_LIBRARY_PATH=" + at}
}
