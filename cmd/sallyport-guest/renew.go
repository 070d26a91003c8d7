package main

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/microvm/guest"
)

// graceMemory is what process 1 of the sandbox takes beside the program.
const graceMemory = 24 << 20

// An identity is the files that say who this machine is. They lie over those of
// the image.
type identity struct {
	hosts string // as the image has it
	boot  *os.File
	texts map[string][]byte // the files' memory: who writes there needs no help of the kernel
}

const (
	hostName  = "etc/hostname"
	hostsFile = "etc/hosts"
	machineID = "etc/machine-id"
	bootID    = "proc/sys/kernel/random/boot_id" // lies over the kernel's once there is a sandbox
)

// openIdentity makes the files and lays a read-only /etc with them over the image's.
func openIdentity() identity {
	hosts, _ := os.ReadFile(image + "/" + hostsFile) // an image may have none
	id := identity{hosts: strings.TrimRight(string(hosts), "\n") + "\n127.0.0.1\t", texts: map[string][]byte{}}
	mount("tmpfs", ids, "tmpfs", 0, "size=256k,mode=0755")
	must(os.Mkdir(ids+"/etc", 0o755), ids)
	first := id.of(guest.Renewal{Hostname: "sandbox-00000000"})
	for path, own := range map[string]string{hostName: "/etc/hostname", hostsFile: "/etc/hosts", machineID: "/etc/machine-id", bootID: "/boot_id"} {
		must(os.WriteFile(ids+own, []byte(first[path]), 0o444), own)
		f, err := os.OpenFile(ids+own, os.O_RDWR, 0)
		must(err, own)
		must(f.Chmod(0o444), own)
		id.texts[path], err = unix.Mmap(int(f.Fd()), 0, len(first[path]), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		must(err, own)
		if path == bootID {
			id.boot = f
		}
	}
	mount("overlay", image+"/etc", "overlay", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "lowerdir="+ids+"/etc:"+image+"/etc")
	return id
}

// of is what the files say of a machine. Each text is as long as of any other: names
// and ids are.
func (id identity) of(r guest.Renewal) map[string]string {
	return map[string]string{
		hostName:  r.Hostname + "\n",
		hostsFile: id.hosts + r.Hostname + "\n",
		machineID: hex.EncodeToString(r.MachineID[:]) + "\n",
		bootID:    uuid(r.BootID) + "\n",
	}
}

// become writes the files.
func (id identity) become(r guest.Renewal) error {
	for path, text := range id.of(r) {
		if copy(id.texts[path], text) != len(text) || len(text) != len(id.texts[path]) {
			return errors.New(path + " is of another length")
		}
	}
	return nil
}

func uuid(b [16]byte) string {
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// renew makes this machine another than the one that it was copied from, and
// tells how its sandbox is bounded now.
func (m *machine) renew(r guest.Renewal) {
	m.renewed.Store(true)
	m.session.Forget() // connections are those of the machine that this was copied from
	what, err := m.another(r)
	m.session.Release()
	if err != nil {
		m.trouble(what, err)
		return
	}
	if r.Bounds == (guest.Bounds{}) {
		m.say(guest.Renewed, nil)
		return
	}
	m.say(guest.Renewed, m.bounds().Append(nil))
}

// another does it, or tells what could not be done.
func (m *machine) another(r guest.Renewal) (what string, err error) {
	if err := m.reseed(r.Seed[:]); err != nil {
		return "random numbers", err
	}
	if err := setClock(r.Now); err != nil {
		return "the clock", err
	}
	if err := unix.Sethostname([]byte(r.Hostname)); err != nil {
		return "the host's name", err
	}
	if err := m.identity.become(r); err != nil {
		return "who this is", err
	}
	return "the bounds", m.bound(r.Bounds)
}

func setClock(ns int64) error {
	t := unix.NsecToTimespec(ns)
	return unix.ClockSettime(unix.CLOCK_REALTIME, &t)
}

// reseed adds to the kernel's entropy and has its generator start from that.
func (m *machine) reseed(seed []byte) error {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(seed)*8))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(seed)))
	b = append(b, seed...)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, m.random.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&b[0]))); e != 0 {
		return e
	}
	const reseedCRNG = 0x5207 // RNDRESEEDCRNG
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, m.random.Fd(), reseedCRNG, 0); e != 0 {
		return e
	}
	return nil
}

// bound sets the bounds of a sandbox whose programs have been started.
func (m *machine) bound(b guest.Bounds) error {
	if b.Memory > 0 {
		if err := m.limitMemory(b.Memory); err != nil {
			return err
		}
	}
	if b.Disk > 0 {
		data := fmt.Sprintf("size=%d,nr_inodes=%d", b.Disk, b.Inodes)
		if err := unix.Mount("", "/run", "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
			return err
		}
	}
	if b.Procs > 0 {
		for _, pid := range m.pids() {
			lim := unix.Rlimit{Cur: uint64(b.Procs), Max: uint64(b.Procs)}
			if err := unix.Prlimit(pid, unix.RLIMIT_NPROC, &lim, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// bounds are those that are in force.
func (m *machine) bounds() (b guest.Bounds) {
	if n, err := strconv.ParseInt(m.groupFile("memory.max"), 10, 64); err == nil {
		b.Memory = n - graceMemory
	}
	var fs unix.Statfs_t
	if pids := m.pids(); len(pids) > 0 && unix.Statfs("/tmp", &fs) == nil {
		b.Disk, b.Inodes = fs.Blocks*uint64(fs.Bsize), fs.Files
		var lim unix.Rlimit
		if unix.Prlimit(pids[len(pids)-1], unix.RLIMIT_NPROC, nil, &lim) == nil {
			b.Procs = uint32(min(lim.Cur, 1<<31))
		}
	}
	return b
}

func (m *machine) limitMemory(n int64) error {
	return m.setGroup("memory.max", strconv.FormatInt(n+graceMemory, 10))
}

func (m *machine) setGroup(name, text string) error {
	fd, err := unix.Openat(m.group, name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	return err
}

func (m *machine) groupFile(name string) string {
	fd, err := unix.Openat(m.group, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	b := make([]byte, 4096)
	n, _ := unix.Read(fd, b)
	return strings.TrimSpace(string(b[:max(n, 0)]))
}

// pids are the processes of the sandbox, in the order in which they came.
func (m *machine) pids() (all []int) {
	for _, f := range strings.Fields(m.groupFile("cgroup.procs")) {
		if n, err := strconv.Atoi(f); err == nil {
			all = append(all, n)
		}
	}
	return all
}
