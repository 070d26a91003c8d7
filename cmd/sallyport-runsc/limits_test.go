package main

import (
	"runtime"
	"slices"
	"strconv"
	"testing"
)

func TestShowLimits(t *testing.T) {
	host := strconv.Itoa(runtime.NumCPU())
	for _, c := range []struct {
		id, cpus, memory string
	}{
		{"sp-c0ffee-c1-m1024", "1", "1024"},
		{"sp-abc-c1024-m1024", host, "1024"},
		{"sp-abc-c0-m1024", "", "9"},
		{"sp-abc-c-m1024", "", "9"},
		{"sp-abc-m1024", "", "9"},
		{"sp-abc-c1-m-1", "", "9"},
		{"other", "", "9"},
	} {
		args := []string{"runsc-sandbox", "--root=/x", "boot", "--total-memory", "9", "--more", c.id}
		want := slices.Clone(args)
		want[4] = c.memory
		if c.cpus != "" {
			want = slices.Insert(want, 3, cpuNumber, c.cpus)
		}
		got := showLimits(args)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", c.id, got, want)
		}
		if again := showLimits(got); !slices.Equal(again, got) {
			t.Errorf("%s: once more: %q", c.id, again)
		}
	}
}
