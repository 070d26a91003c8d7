package kernel

import (
	"bytes"
	"fmt"
)

// A cpio writes an archive of the form "newc", as the kernel reads an initramfs
// (Documentation/driver-api/early-userspace/buffer-format.rst). Everything in it
// belongs to root and has no time, so that the same files are the same bytes.
type cpio struct {
	w     *bytes.Buffer
	inode int
}

// add writes one entry; mode has the file's type in it. A folder comes before what
// is in it.
func (c *cpio) add(name string, mode uint32, content []byte) {
	c.inode++
	c.entry(name, mode, c.inode, content)
}

func (c *cpio) entry(name string, mode uint32, inode int, content []byte) {
	// magic, inode, mode, uid, gid, links, time, size, device, device of a special
	// file, length of the name with its end, no checksum
	fmt.Fprintf(c.w, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	c.w.WriteString(name)
	c.w.WriteByte(0)
	c.pad()
	c.w.Write(content)
	c.pad()
}

// close ends the archive; another one may follow.
func (c *cpio) close() { c.entry("TRAILER!!!", 0, 0, nil) }

func (c *cpio) pad() {
	for c.w.Len()%4 != 0 {
		c.w.WriteByte(0)
	}
}
