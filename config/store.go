package config

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// storeFiles are the parameters of a database's URL that name files; relative
// ones belong to the folder of the configuration.
var storeFiles = []string{"passfile", "sslrootcert", "sslcert", "sslkey"}

// store checks the form of the setting. What is wrong with the server shows when
// it is opened.
func (d *decoder) store(s *string, dir string) {
	if *s == "sqlite" {
		return
	}
	u, err := url.Parse(*s)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Host == "" && u.Query().Get("host") == "" {
		d.fail(d.places["store"], "write sqlite, or postgres://USER@HOST/DATABASE", "store names no store that there is")
		return
	}
	q := u.Query()
	changed := false
	for _, name := range storeFiles {
		if p := q.Get(name); p != "" && !filepath.IsAbs(p) && (name != "sslrootcert" || p != "system") {
			q.Set(name, filepath.Join(dir, p))
			changed = true
		}
	}
	if changed {
		u.RawQuery = q.Encode()
		*s = u.String()
	}
}

// password reports whether the store's URL holds one.
func password(store string) bool {
	u, err := url.Parse(store)
	if err != nil {
		return false
	}
	_, inUser := u.User.Password()
	return inUser || u.Query().Has("password")
}

// private refuses a file that others can read and that holds a password.
func private(path string, c *Config) error {
	if !password(c.Store) {
		return nil
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm()&0o007 == 0 {
		return err
	}
	return problems(path, []problem{{text: "holds the database's password, and everybody may read it",
		hint: "chmod o-rwx it, and change the password; or keep it elsewhere: ?passfile=FILE"}})
}

// StoreName tells people which store it is, without its password.
func (c *Config) StoreName() string {
	u, err := url.Parse(c.Store)
	if err != nil || u.Scheme == "" {
		return c.Store
	}
	where := u.Host
	if where == "" {
		where = u.Query().Get("host")
	}
	return "PostgreSQL, database " + strings.TrimPrefix(u.Path, "/") + " at " + where
}
