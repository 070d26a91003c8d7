package age

import (
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
	known, err := parse("gvisor v0 2026-09-05 there\nlinux 6.1.192 2026-11-26 there\nlinux 6.18.44 - there\n")
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
		{Kernel, "weird", "no release of this series", false},
	} {
		said, hint := tt.age(tt.running, known)
		if !strings.Contains(said, tt.want) || (hint != "") != tt.wrong {
			t.Errorf("%q: %q, %q; want %q", tt.running, said, hint, tt.want)
		}
	}
}
