package main

import (
	"os"
)

// reach tries to read what is of the host, by every name that could lead there.
func reach() {
	for _, p := range []string{
		"/etc/passwd", "/etc/hostname", "../etc/passwd", "../../../../../../etc/passwd", "/proc/self/environ", "/proc/1/cmdline", "/dev/mem", "/sys/kernel/uevent_helper",
		"./../../etc/passwd", "//etc/passwd", "/./etc/passwd", "/home/agent/../../etc/passwd",
	} {
		if b, err := os.ReadFile(p); err == nil {
			say("REACHED " + p + " " + string(b))
		}
	}
	for _, dir := range []string{"/", ".", "..", "/etc", "/proc", "/dev", "/sys", "/tmp"} {
		all, err := os.ReadDir(dir)
		for _, f := range all {
			if err == nil {
				say("LISTED " + dir + " " + f.Name())
			}
		}
	}
	for fd := uintptr(3); fd < 64; fd++ {
		f := os.NewFile(fd, "")
		if st, err := f.Stat(); err == nil {
			say("FD " + st.Mode().String())
		}
	}
	for _, e := range os.Environ() {
		say("ENV " + e)
	}
	say("END")
}
