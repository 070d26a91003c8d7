package age

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReleases(t *testing.T) {
	if all, err := Known(); err != nil || len(all) < 3 {
		t.Fatalf("%d releases, %v", len(all), err)
	}
	for _, bad := range []string{"gvisor 1", "linux 6.1.1 yesterday here"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestAges(t *testing.T) {
	known, err := parse("gvisor v0 2026-09-05 there\nlinux 6.1.192 2026-11-26 there\nlinux 6.18.44 - there\nqemu 7.2.22 2025-12-16 there\nfirecracker 1.16.1 2026-06-24 there\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		age     func(string, []Release) (said, hint string)
		running string
		want    string
		wrong   bool
	}{
		{Gvisor, "v0.0.0-20260905035102-160fafc42237", "2026-09-05, 0 days behind", false},
		{Gvisor, "v0.0.0-20260901035102-160fafc42237", "2026-09-01, 4 days behind", false},
		{Gvisor, "v0.0.0-20261001035102-160fafc42237", "0 days behind", false},
		{Gvisor, "v0.0.0-20260101035102-160fafc42237", "247 days behind", true},
		{Gvisor, "unknown", "unknown version", false},
		{Gvisor, "", "unknown version", false},
		{Kernel, KernelOf("Linux version 6.1.0-39-amd64 (debian-kernel@lists.debian.org) #1 SMP PREEMPT_DYNAMIC Debian 6.1.148-1 (2025-08-26)"), "44 releases behind 6.1.192 of 2026-11-26", true},
		{Kernel, "6.1.192", "not behind", false},
		{Kernel, KernelOf("Linux version 6.18.44-fc-v669 (builder@x) #1 SMP"), "not behind 6.18.44, the newest", false},
		{Kernel, "6.12.1", "no release of this series", false},
		{Qemu, "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright", "QEMU 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3), not behind 7.2.22 of 2025-12-16", false},
		{Qemu, "QEMU emulator version 7.2.15 (Debian 1:7.2+dfsg-7+deb12u12)\n", "7 releases behind 7.2.22 of 2025-12-16", true},
		{Qemu, "QEMU emulator version 10.0.2\n", "QEMU 10.0.2: no release of this series", false},
		{Qemu, "", "not installed", true},
		{Qemu, "does not say: signal: killed", "unknown version", false},
		{Firecracker, "Firecracker v1.16.1\n", "not behind 1.16.1 of 2026-06-24, the newest of its series known when this was built (this build was not run against Firecracker)", false},
		{Firecracker, "Firecracker v1.16.0\n", "1 releases behind 1.16.1 of 2026-06-24 (this build was not run against Firecracker)", true},
		{Firecracker, "", "not installed, and not needed: microVMs run in QEMU; it would be 1.16.1 of 2026-06-24 (this build was not run against Firecracker)", false},
		{Firecracker, "\x1b[2J", "of an unknown version (this", false},
		{Kernel, "weird", "no release of this series", false},
	} {
		said, hint := tt.age(tt.running, known)
		if !strings.Contains(said, tt.want) || (hint != "") != tt.wrong {
			t.Errorf("%q: %q, %q; want %q", tt.running, said, hint, tt.want)
		}
	}
}

// What is in a cache is told, each kernel with how to renew it.
func TestGuestKernels(t *testing.T) {
	known, err := parse("linux 6.1.192 2026-11-26 there\n")
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	if all := guestKernels(cache, known); len(all) != 1 || !all[0].Lacking || !strings.Contains(all[0].Said, "not in the cache") || all[0].Hint == "" {
		t.Error(all)
	}
	sum := strings.Repeat("0a", 32)
	for name, version := range map[string]string{"debian": "6.1.192-3", "small": "6.1.180-1"} {
		if err := os.MkdirAll(filepath.Join(cache, "kernels"), 0o755); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf(`{"name":%q,"package":{"version":%q},"image":%q,"modules":%q}`, name, version, sum, sum)
		if err := os.WriteFile(filepath.Join(cache, "kernels", name+".json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all := guestKernels(cache, known)
	if len(all) != 2 || all[0].Hint != "" || !strings.Contains(all[0].Said, "debian: Linux 6.1.192-3, not behind") ||
		!strings.Contains(all[1].Said, "small: Linux 6.1.180-1, 12 releases behind") || !strings.Contains(all[1].Hint, "guest-kernel") {
		t.Error(all)
	}
	if err := os.WriteFile(filepath.Join(cache, "kernels", "small.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if all := guestKernels(cache, known); len(all) != 2 || !strings.Contains(all[1].Said, "cannot be read") {
		t.Error(all)
	}
}
