package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// hardware prints what the machine is made of: devices on its buses, with or without
// a driver, and disks, with whether they can be written.
func hardware() {
	for _, bus := range []struct{ name, what string }{{"virtio", "device"}, {"pci", "class"}} {
		all, _ := filepath.Glob("/sys/bus/" + bus.name + "/devices/*")
		for _, d := range all {
			fmt.Println("BUS", bus.name, line(filepath.Join(d, bus.what)))
		}
	}
	disks, _ := filepath.Glob("/sys/block/*")
	for _, d := range disks {
		how := "rw"
		if line(filepath.Join(d, "ro")) == "1" {
			how = "ro"
		}
		fmt.Println("DISK", filepath.Base(d), how)
	}
}

func line(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}
