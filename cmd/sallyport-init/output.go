package main

import (
	"syscall"

	"sallyport.dev/sallyport/tier/payload"
)

// A collector tells what programs left in the output folder: files only, within
// bounds, each as often as it changes.
type collector struct {
	told  map[string]seen
	count int
	bytes uint64
}

type seen struct{ size, at uint64 }

const outputDepth = 4

// collect tells what is new in the output folder. Its parent is root's: no
// program can put something else in its place.
func (c *collector) collect() {
	if c.told == nil {
		c.told = map[string]seen{}
	}
	c.count, c.bytes = 0, 0
	dir, err := syscall.Open(payload.OutputDir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer syscall.Close(dir)
	c.folder(dir, ".", "", outputDepth)
}

func (c *collector) folder(home int, path, shown string, depth int) {
	dir, err := openat2(home, path, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW)
	if err != nil {
		return // it is gone, or no folder any more
	}
	defer syscall.Close(dir)
	buf := make([]byte, 16<<10)
	for visited := 0; visited < payload.MaxEntries; {
		n, err := syscall.ReadDirent(dir, buf)
		if err != nil || n <= 0 {
			return
		}
		_, _, names := syscall.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			visited++
			c.entry(home, dir, path+"/"+name, shown+name, name, depth)
		}
	}
}

func (c *collector) entry(home, dir int, path, shown, name string, depth int) {
	fd, err := openat2(dir, name, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW|syscall.O_NOCTTY)
	if err != nil {
		return
	}
	defer syscall.Close(fd)
	kind, size, at := kindOf(fd)
	switch {
	case kind == 'd' && depth > 1:
		c.folder(home, path, shown+"/", depth-1)
		return
	case kind != 'f' || c.told[path] == seen{size, at}:
		return
	}
	if len(c.told) < payload.MaxEntries {
		c.told[path] = seen{size, at}
	}
	head := append(payload.AppendUint64(nil, size), shown...)
	if c.count >= payload.MaxArtifacts || c.bytes+size > payload.MaxArtifactBytes {
		report(payload.LeftOut, head)
		return
	}
	c.count++
	c.bytes += size
	report(payload.Artifact, head)
	buf := make([]byte, min(size, chunk))
	for at := int64(0); size > 0; {
		n, err := syscall.Pread(fd, buf[:min(size, chunk)], at)
		if n <= 0 || err != nil {
			return // it became shorter
		}
		report(payload.Data, buf[:n])
		at, size = at+int64(n), size-uint64(n)
	}
}
