// Package folder makes data folders.
package folder

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/store/configured"
)

// ownOnly are the parts of a data folder that belong to one gateway.
var ownOnly = []string{"owner", "serve.lock", "admin.sock", "sallyport.db", "sallyport.db-wal", "sallyport.db-shm",
	"keys/audit.key", "keys/audit.pub", "keys/audit-others.pub", "keys/audit-heads"}

// A Joined is what Join has made.
type Joined struct {
	Config    string `json:"config"`
	PublicKey string `json:"public_key"` // file with the key of the new gateway's audit log
	Store     string `json:"store"`
}

// Join makes data the folder of one more gateway on the database of the one
// whose folder is from. It shares everything with that one (keys of tokens and
// secrets, configuration, policies, tools), but for the audit log: each gateway
// writes one of its own, and its heads into the file that headsPath names. Where
// it fails, what it wrote is removed again.
func Join(ctx context.Context, from, data string, headsPath func(data, configured string) string) (j Joined, err error) {
	from, err = filepath.Abs(from)
	if err != nil {
		return j, err
	}
	cfg, err := config.Load(filepath.Join(from, "sallyport.yaml"))
	if err != nil {
		return j, err
	}
	if cfg.Store == configured.SQLite {
		return j, &sallyport.Error{Code: sallyport.Invalid, Message: "the gateway of " + from + " keeps its state in SQLite, which cannot be shared",
			Hint: "several gateways need `store: postgres://…`"}
	}
	others, err := audit.LoadPublicKeys(filepath.Join(from, "keys"))
	if err != nil {
		return j, err
	}
	if err := Empty(data); err != nil {
		return j, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, clearOut(data))
		}
	}()
	if err := duplicate(from, data); err != nil {
		return j, err
	}
	if err := ownLog(ctx, data, others, headsPath); err != nil {
		return j, err
	}
	j = Joined{filepath.Join(data, "sallyport.yaml"), filepath.Join(data, "keys", "audit.pub"), cfg.StoreName()}
	return j, os.WriteFile(filepath.Join(data, "owner"), []byte(strconv.Itoa(os.Getuid())), 0o644)
}

// Empty makes a folder that does not exist or is empty ready to be filled.
func Empty(data string) error {
	entries, err := os.ReadDir(data)
	if errors.Is(err, syscall.ENOTDIR) {
		return &sallyport.Error{Code: sallyport.Invalid, Message: data + " is not a folder", Hint: "name another place with --data"}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(filepath.Join(data, "sallyport.yaml")); err == nil {
		return &sallyport.Error{Code: sallyport.Invalid, Message: data + " is a data folder already",
			Hint: "`sallyport serve` starts its gateway; --data names another folder"}
	}
	if len(entries) > 0 {
		return &sallyport.Error{Code: sallyport.Invalid, Message: data + " is not empty",
			Hint: "name another folder with --data, or remove this one if nothing in it is needed"}
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	return os.Chmod(data, 0o711) // one that was there already
}

// ownLog begins this gateway's audit log.
func ownLog(ctx context.Context, data string, others []string, headsPath func(data, configured string) string) error {
	keys := filepath.Join(data, "keys")
	key, err := audit.CreateKey(keys)
	if err != nil {
		return err
	}
	if err := audit.AddPublicKeys(keys, others); err != nil {
		return err
	}
	cfg, err := config.Load(filepath.Join(data, "sallyport.yaml"))
	if err != nil {
		return err
	}
	seal, err := audit.NewSealer(key, headsPath(data, cfg.Audit.Heads))
	if err != nil {
		return err
	}
	db, err := configured.Open(ctx, cfg.Store, data, seal)
	if err != nil {
		return errors.Join(err, seal.Close())
	}
	e, err := audit.AdminEntry(sallyport.DefaultTenant, sallyport.Change{Action: "init join", By: "init", Target: key.Writer()})
	if err == nil {
		err = db.AppendEntries(ctx, e)
	}
	return errors.Join(err, db.Close(), seal.Close())
}

// duplicate copies files and folders, with their modes, but for what is one
// gateway's own.
func duplicate(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil || name == "." || slices.Contains(ownOnly, filepath.ToSlash(name)) {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		at := filepath.Join(to, name)
		switch {
		case st.IsDir():
			return os.Mkdir(at, st.Mode().Perm())
		case !st.Mode().IsRegular():
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(at, b, st.Mode().Perm())
	})
}

func clearOut(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}
