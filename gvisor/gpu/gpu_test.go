package gpu_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/devices/nvproxy/nvconf"
	"gvisor.dev/gvisor/runsc/config"
	rflag "gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/specutils"

	"sallyport.dev/sallyport/gvisor/gpu"
)

var update = flag.Bool("update", false, "write the golden file anew")

// known are versions that a gVisor supports, as it lists them.
var known = []string{"535.129.03", "550.54.15", "570.86.15", "580.65.06"}

const version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (builder@host)\nGCC version:  gcc version 12.2.0\n"

// machine is one with two GPUs, but for what is taken away.
func machine(t *testing.T, driver string, without ...string) gpu.Machine {
	t.Helper()
	root := t.TempDir()
	for p, content := range map[string]string{
		"/proc/driver/nvidia/version": strings.Replace(version, "%s", driver, 1), "/proc/driver/nvidia/params": "ResmanDebugLevel: 1\n",
		"/dev/nvidia1": "", "/dev/nvidia0": "", "/dev/nvidiactl": "", "/dev/nvidia-uvm": "", "/dev/nvidia-modeset": "",
		"/usr/lib/x86_64-linux-gnu/libcuda.so." + driver: "cuda", "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so." + driver: "ml",
		"/usr/lib/x86_64-linux-gnu/libcuda.so.1.2.3": "of another driver",
	} {
		if slices.Contains(without, p) {
			continue
		}
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(p)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, p), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	numbers := map[string]uint64{"nvidia0": unix.Mkdev(195, 0), "nvidia1": unix.Mkdev(195, 1), "nvidiactl": unix.Mkdev(195, 255), "nvidia-uvm": unix.Mkdev(510, 0)}
	return gpu.Machine{Root: root, Stat: func(p string, st *unix.Stat_t) error {
		if err := unix.Stat(p, st); err != nil {
			return err
		}
		if n, ok := numbers[filepath.Base(p)]; ok && !slices.Contains(without, "the kind of "+filepath.Base(p)) {
			st.Mode, st.Rdev = unix.S_IFCHR|0o666, n
		}
		return nil
	}}
}

// What a sandbox is started with on a machine with GPUs. Not run on a GPU.
func TestGolden(t *testing.T) {
	g, err := machine(t, "550.54.15").Find(known)
	if err != nil {
		t.Fatal(err)
	}
	spec := &specs.Spec{Process: &specs.Process{Env: []string{"A=b"}}, Linux: &specs.Linux{}}
	g.Show(spec, "/run/host/driver", "/mnt")
	got, err := json.MarshalIndent(map[string]any{"spec": spec, "flags": g.Flags(), "gpus": g.Names()}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/two-gpus.json"
	if *update {
		if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || string(got)+"\n" != string(want) {
		t.Errorf("%s\nwant\n%s%v", got, want, err)
	}
	// What gVisor makes of it: it turns nvproxy on, with these capabilities.
	set := rflag.NewFlagSet("runsc", rflag.ContinueOnError)
	config.RegisterFlags(set)
	if err := set.Parse(g.Flags()); err != nil {
		t.Fatal(err)
	}
	conf, err := config.NewFromFlags(set)
	if err != nil {
		t.Fatal(err)
	}
	if !specutils.NVProxyEnabled(spec, conf) || !specutils.GPUFunctionalityRequested(spec, conf) || conf.NVProxyDriverVersion != "550.54.15" {
		t.Error("gVisor does not see that it is to show GPUs")
	}
	if caps, err := specutils.NVProxyDriverCapsFromEnv(spec, conf); err != nil || caps != nvconf.CapCompute|nvconf.CapUtility {
		t.Errorf("the driver's capabilities are %v, %v", caps, err)
	}
	plain, err := config.NewFromFlags(func() *rflag.FlagSet {
		s := rflag.NewFlagSet("runsc", rflag.ContinueOnError)
		config.RegisterFlags(s)
		return s
	}())
	if err != nil || specutils.NVProxyEnabled(&specs.Spec{Process: &specs.Process{}, Linux: &specs.Linux{}}, plain) {
		t.Errorf("control: gVisor shows GPUs to a sandbox that asks for none: %v", err)
	}
}

// What is missing is said, all of it, whatever it is.
func TestLack(t *testing.T) {
	for name, c := range map[string]struct {
		m    gpu.Machine
		want []string
	}{
		"nothing at all":     {gpu.Machine{Root: t.TempDir()}, []string{"no NVIDIA driver is loaded (/proc/driver/nvidia/version is missing)", "no device node of a GPU", "no device node /dev/nvidiactl", "no device node /dev/nvidia-uvm"}},
		"no driver":          {machine(t, "550.54.15", "/proc/driver/nvidia/version"), []string{"no NVIDIA driver is loaded"}},
		"half a driver":      {machine(t, "550.54.15", "/proc/driver/nvidia/params"), []string{"/proc/driver/nvidia/params is missing"}},
		"unsupported driver": {machine(t, "470.10.01"), []string{"the NVIDIA driver is 470.10.01, which this gVisor does not support (it knows 4 from 535.129.03 to 580.65.06)"}},
		"no GPU":             {machine(t, "550.54.15", "/dev/nvidia0", "/dev/nvidia1"), []string{"no device node of a GPU (/dev/nvidia0, …)"}},
		"no control":         {machine(t, "550.54.15", "/dev/nvidiactl"), []string{"no device node /dev/nvidiactl"}},
		"no memory":          {machine(t, "550.54.15", "/dev/nvidia-uvm"), []string{"no device node /dev/nvidia-uvm"}},
		"a file for a node":  {machine(t, "550.54.15", "the kind of nvidiactl"), []string{"/dev/nvidiactl is no device node"}},
		"no library":         {machine(t, "550.54.15", "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15"), []string{"the driver's library libcuda.so.550.54.15"}},
	} {
		_, err := c.m.Find(known)
		lack, ok := err.(*gpu.Lack)
		if !ok || lack.Hint == "" || !slices.EqualFunc(strings.Split(lack.What, "; "), c.want, strings.Contains) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
	garbled := machine(t, "550.54.15")
	if err := os.WriteFile(filepath.Join(garbled.Root, "/proc/driver/nvidia/version"), []byte("no version\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := garbled.Find(known); err == nil || !strings.Contains(err.Error(), "does not tell its version") {
		t.Errorf("%v", err)
	}
}

// Only the libraries of the driver's own version are shown, under the names that
// programs load.
func TestGather(t *testing.T) {
	g, err := machine(t, "550.54.15").Find(known)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "driver")
	for range 2 { // also over what was there
		if err := g.Gather(dir); err != nil {
			t.Fatal(err)
		}
	}
	names := map[string]string{}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		b, _ := os.ReadFile(filepath.Join(dir, e.Name()))
		names[e.Name()] = string(b)
	}
	if len(names) != 6 || names["libcuda.so.1"] != "cuda" || names["libcuda.so"] != "cuda" || names["libnvidia-ml.so.1"] != "ml" {
		t.Errorf("%q", names)
	}
}
