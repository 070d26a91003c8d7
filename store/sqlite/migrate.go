package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

//go:embed migrations/*.sql
var migrations embed.FS

// applicationID marks the file as ours ("SPRT").
const applicationID = 0x53505254

// querier is what *sql.Conn and *sql.DB share.
type querier interface {
	QueryRowContext(ctx context.Context, q string, args ...any) *sql.Row
}

func versions() ([]string, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	slices.Sort(names)
	return names, err
}

func version(ctx context.Context, db querier) (int, error) {
	var id, v, tables int
	if err := db.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id); err != nil {
		return 0, err
	}
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v); err != nil {
		return 0, err
	}
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return 0, err
	}
	if id != applicationID && (tables > 0 || v != 0 || id != 0) {
		return 0, errors.New("the file is a database of another program")
	}
	return v, nil
}

func checkVersion(ctx context.Context, db querier) error {
	names, err := versions()
	if err != nil {
		return err
	}
	v, err := version(ctx, db)
	switch {
	case err != nil:
		return err
	case v > len(names):
		return fmt.Errorf("the database has schema version %d, this program knows up to %d: use the newer program", v, len(names))
	case v < len(names):
		return fmt.Errorf("the database has schema version %d, this program needs %d: start the gateway once to bring it up to date", v, len(names))
	}
	return nil
}

// migrate applies what is missing, each step in a transaction of its own.
// Two processes that start together are serialised by the write lock.
func migrate(ctx context.Context, conn *sql.Conn) error {
	names, err := versions()
	if err != nil {
		return err
	}
	for {
		done, err := migrateOne(ctx, conn, names)
		if err != nil || done {
			return err
		}
	}
}

func migrateOne(ctx context.Context, conn *sql.Conn, names []string) (done bool, err error) {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() // after a commit it does nothing
	v, err := version(ctx, tx)
	if err != nil {
		return false, err
	}
	if v == len(names) {
		return true, nil
	}
	if v > len(names) {
		return false, fmt.Errorf("the database has schema version %d, this program knows up to %d: use the newer program", v, len(names))
	}
	text, err := migrations.ReadFile(names[v])
	if err != nil {
		return false, err
	}
	text = fmt.Appendf(text, "\nPRAGMA application_id = %d; PRAGMA user_version = %d;", applicationID, v+1)
	if _, err := tx.ExecContext(ctx, string(text)); err != nil {
		return false, fmt.Errorf("%s: %w", names[v], err)
	}
	return false, tx.Commit()
}
