package gvisor

import (
	"encoding/json"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Descriptors that the runtime inherits.
const (
	fdInit    = 3 // the program of process 1
	fdPayload = 4
	fdReport  = 5
	fdImage   = 6
	fdLimits  = 7
	fdLine    = 8 // of an interpreter that is started ahead
	fdState   = 8 // of a frozen box
)

// hostname is the same in every sandbox and says nothing of the host.
const hostname = "sandbox"

// bundleSpec is the OCI configuration of every sandbox. Nothing of a request is
// in it, so it holds no secret and may lie on a disk. The image is named by the
// inherited descriptor: what was verified is what is mounted.
//
// The capabilities are those of process 1 inside the sandbox, which drops them
// before the program starts; the host's sandbox process has none.
//
// way is the folder of the socket that leads to the broker, "" for a sandbox
// that reaches nothing. args are words for process 1.
func bundleSpec(root, way string, args ...string) ([]byte, error) {
	return json.Marshal(specOf(root, way, args...))
}

// specOf is the same before it is written.
func specOf(root, way string, args ...string) *specs.Spec {
	caps := []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_ADMIN"}
	ns := []specs.LinuxNamespace{}
	for _, t := range []specs.LinuxNamespaceType{
		specs.PIDNamespace, specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.MountNamespace,
	} {
		ns = append(ns, specs.LinuxNamespace{Type: t})
	}
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		// init mounts over /tmp; naming it keeps gVisor's own unsized one away.
		{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"size=4096", "mode=0755", "ro"}},
	}
	if way != "" {
		mounts = append(mounts, specs.Mount{Destination: wayInside, Type: "bind", Source: way, Options: []string{"bind", "ro", "nosuid", "nodev", "noexec"}})
	}
	linux := &specs.Linux{Namespaces: ns}
	if way != "" {
		linux.Namespaces = append(linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
		own := []specs.LinuxIDMapping{{ContainerID: 0, HostID: wayUID, Size: 1}}
		linux.UIDMappings, linux.GIDMappings = own, own
	}
	return &specs.Spec{
		Version: specs.Version,
		Process: &specs.Process{
			Args:         append([]string{"/sallyport-init"}, args...),
			Cwd:          "/",
			Capabilities: &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_CORE", Hard: 0, Soft: 0},
				{Type: "RLIMIT_NOFILE", Hard: 4096, Soft: 1024},
			},
		},
		Root:     &specs.Root{Path: root, Readonly: true},
		Hostname: hostname,
		Mounts:   mounts,
		Linux:    linux,
		Annotations: map[string]string{
			"dev.gvisor.spec.rootfs.source": "/proc/self/fd/6",
			"dev.gvisor.spec.rootfs.type":   "erofs",
		},
	}
}
