// Package configured opens the store that a configuration names: a file of the
// data folder, or a PostgreSQL database.
package configured

import (
	"context"
	"os"
	"path/filepath"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store/postgres"
	"sallyport.dev/sallyport/store/relational"
	"sallyport.dev/sallyport/store/sqlite"
)

// SQLite is the setting for a file in the data folder; others are URLs.
const SQLite = "sqlite"

// Open opens the store of the gateway whose data folder is data, for writing.
func Open(ctx context.Context, setting, data string, seal *audit.Sealer, opts ...relational.Option) (*relational.Store, error) {
	if setting == SQLite {
		return sqlite.Open(file(data), seal, opts...)
	}
	return postgres.Open(ctx, setting, seal, opts...)
}

// OpenReadOnly opens the same store for reading. It works while gateways run.
func OpenReadOnly(ctx context.Context, setting, data string, opts ...relational.Option) (*relational.Store, error) {
	if setting != SQLite {
		return postgres.OpenReadOnly(ctx, setting, opts...)
	}
	path := file(data)
	f, err := os.Open(path) // says more than the database's driver does
	if os.IsNotExist(err) {
		return nil, &sallyport.Error{Code: sallyport.Unavailable, Message: "no database at " + path, Hint: "name the data folder with --data or $SALLYPORT_DATA"}
	} else if err != nil {
		return nil, err
	}
	f.Close()
	return sqlite.OpenReadOnly(path, opts...)
}

func file(data string) string { return filepath.Join(data, "sallyport.db") }
