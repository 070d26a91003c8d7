package sandboxd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
)

// A ServerConfig says under which identities third-party servers run.
type ServerConfig struct {
	State    string   // folder for their homes, kept between starts
	Book     string   // file that says which home has which uid; all sandbox hosts of a machine share one
	FirstUID int      // of the range; 0 means 64600
	UIDs     int      // size of the range; 0 means 800
	Init     string   // path of sallyport-init
	Closed   []string // folders that no server is shown, beside this host's own: those of gateways and caches
	Environ  []string // of this process: what npm is told when it installs their packages
	Memory   int64    // bytes for one server with all its children; 0 means 2 GiB
}

func (c ServerConfig) withDefaults() ServerConfig {
	if c.FirstUID == 0 {
		c.FirstUID = 64600
	}
	if c.UIDs == 0 {
		c.UIDs = 800
	}
	if c.Book == "" {
		c.Book = filepath.Join(c.State, "uids.json")
	}
	if c.Memory == 0 {
		c.Memory = 2 << 30
	}
	return c
}

var serverName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// homes is the folder of the servers' homes.
func (c ServerConfig) homes() string { return filepath.Join(c.State, "servers") }

// identity gives a server its uid and its home, the same ones each time. Two
// names never share a uid; a range that is used up is an error.
func (c ServerConfig) identity(name string) (uid int, home string, err error) {
	c = c.withDefaults()
	if !serverName.MatchString(name) {
		return 0, "", refused(sallyport.Invalid, "use letters, digits, - and _", "%.64q is not a server's name", name)
	}
	dir := c.homes()
	home = filepath.Join(dir, name)
	for _, d := range []string{dir, filepath.Dir(c.Book)} {
		if err := os.MkdirAll(d, 0o711); err != nil {
			return 0, "", err
		}
	}
	lock, err := os.OpenFile(c.Book+".lock", os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return 0, "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return 0, "", err
	}
	if uid, err = c.allocate(home); err != nil {
		return 0, "", err
	}
	if err := os.Mkdir(home, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return 0, "", err
	}
	var st unix.Stat_t
	if err := unix.Lstat(home, &st); err != nil {
		return 0, "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0, "", fmt.Errorf("%s is not a folder", home)
	}
	return uid, home, os.Lchown(home, uid, uid)
}

// allocate returns the uid that a home has in the book, or the next free one. A
// home that is gone gives its uid back.
// Preconditions: the book is locked.
func (c ServerConfig) allocate(home string) (int, error) {
	uids := map[string]int{}
	b, err := os.ReadFile(c.Book)
	if err == nil {
		err = json.Unmarshal(b, &uids)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%s: %w", c.Book, err)
	}
	if uid, ok := uids[home]; ok {
		return uid, nil
	}
	taken := map[int]bool{}
	for other, u := range uids {
		if _, err := os.Lstat(other); errors.Is(err, fs.ErrNotExist) {
			delete(uids, other)
			continue
		}
		taken[u] = true
	}
	for uid := c.FirstUID; uid < c.FirstUID+c.UIDs; uid++ {
		if taken[uid] {
			continue
		}
		uids[home] = uid
		b, err := json.MarshalIndent(uids, "", "  ")
		if err != nil {
			return 0, err
		}
		if err := os.WriteFile(c.Book+".new", b, 0o600); err != nil {
			return 0, err
		}
		return uid, os.Rename(c.Book+".new", c.Book)
	}
	return 0, refused(sallyport.Unavailable, "remove servers that are not used, or widen the range",
		"all %d uids for servers are taken", c.UIDs)
}

func refused(code sallyport.Code, hint, format string, args ...any) error {
	return &sallyport.Error{
		Code: code, Step: sallyport.Execute, Hint: hint,
		Message: fmt.Sprintf(format, args...), Err: sallyport.ErrNotExecuted,
	}
}
