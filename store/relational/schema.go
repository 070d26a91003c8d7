package relational

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
)

//go:embed migrations/*.sql
var migrations embed.FS

// A Migration is one step of the schema's history, forward only. Its number is
// its place in Migrations, from 1.
type Migration struct {
	Name string // such as 0001_initial.sql
	SQL  string // TEXT, INTEGER and BLOB columns in STRICT tables
}

// Migrations returns the steps that all databases share, each followed by what
// the file of the same name in own, if there is one, adds for one kind. A file
// in own that adds to none is an error: it would never be applied.
func Migrations(own fs.FS) ([]Migration, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	added, err := fs.Glob(own, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	for _, name := range added {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("%s adds to no migration of store/relational: tables belong there", name)
		}
	}
	var out []Migration
	for _, name := range names {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if slices.Contains(added, name) {
			more, err := fs.ReadFile(own, name)
			if err != nil {
				return nil, err
			}
			text = fmt.Appendf(text, "\n%s", more)
		}
		out = append(out, Migration{path.Base(name), string(text)})
	}
	return out, nil
}

// CheckSchema reports why a database of the given version cannot be used by this
// program, or nil. own are the migrations of the database's kind.
func CheckSchema(version int, own fs.FS) error {
	steps, err := Migrations(own)
	known := len(steps)
	switch {
	case err != nil:
		return err
	case version > known:
		return TooNew(version, known)
	case version < known:
		return fmt.Errorf("the database has schema version %d, this program needs %d: start the gateway once to bring it up to date", version, known)
	}
	return nil
}

// TooNew says that a newer program has been there.
func TooNew(version, known int) error {
	return fmt.Errorf("the database has schema version %d, this program knows up to %d: use the newer program", version, known)
}
