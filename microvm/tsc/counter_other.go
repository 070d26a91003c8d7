//go:build !amd64

package tsc

func counter() uint64 { return 0 }
