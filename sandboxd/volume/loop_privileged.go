package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// attach mounts the file system in a file. The device is gone with the mount, or
// with the last copy of it: whatever made a mount namespace meanwhile has one. So
// where a device has the file already, that one is mounted: the same file system
// twice is one, and by two devices it would be destroyed.
func attach(path, dir string) error {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	for range 16 { // a device goes, or somebody else takes the one that was free
		name, err := deviceOf(path)
		if err != nil {
			return err
		}
		var device *os.File
		if name == "" {
			if name, device, err = bind(file, path); errors.Is(err, unix.EBUSY) {
				continue
			} else if err != nil {
				return fmt.Errorf("%w: %w", ErrNone, err)
			}
		}
		err = unix.Mount(name, dir, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, "errors=remount-ro,nodelalloc")
		if device != nil {
			device.Close() // from now on the mount holds it
		}
		switch now, e := deviceOf(path); {
		case err == nil && e == nil && now == name:
			return nil
		case err == nil:
			err = errors.Join(e, unmount(dir))
		case device != nil && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV)):
			return fmt.Errorf("%w: %w", ErrNone, err)
		case device != nil:
			return fmt.Errorf("mounting %s: %w", path, err)
		}
		if err != nil && device != nil {
			return err
		}
	}
	return errors.New("no loop device is free")
}

// bind makes a device of a file. EBUSY: somebody else has it.
func bind(file *os.File, path string) (name string, device *os.File, err error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, err
	}
	defer control.Close()
	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return "", nil, err
	}
	name = fmt.Sprintf("/dev/loop%d", n)
	if device, err = os.OpenFile(name, os.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return "", nil, err
	}
	config := &unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], path)
	if err := unix.IoctlLoopConfigure(int(device.Fd()), config); err != nil {
		device.Close()
		return "", nil, err
	}
	return name, device, nil
}

// unmount takes a volume off; what still has it open keeps it until it ends.
func unmount(dir string) error {
	err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		err = unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	if err != nil {
		return fmt.Errorf("unmounting %s: %w", dir, err)
	}
	return nil
}

// busy waits for a while until no device has the file, for its size can be changed
// then only; used is the device that has it still.
func busy(path string) (used string, err error) {
	for deadline := time.Now().Add(busyFor); ; time.Sleep(20 * time.Millisecond) {
		if used, err = deviceOf(path); err != nil || used == "" || time.Now().After(deadline) {
			return used, err
		}
	}
}

// deviceOf is the device that has a file, "" for none.
func deviceOf(path string) (string, error) {
	want, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	all, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, p := range all {
		b, _ := os.ReadFile(p)
		if info, err := os.Stat(strings.TrimSpace(string(b))); err == nil && os.SameFile(info, want) {
			return "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(p))), nil
		}
	}
	return "", err
}
