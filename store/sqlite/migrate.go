package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"

	"sallyport.dev/sallyport/store/relational"
	"sallyport.dev/sallyport/store/transact"
)

// own are what this kind of database adds to the shared migrations.
//
//go:embed migrations/*.sql
var own embed.FS

// applicationID marks the file as ours ("SPRT").
const applicationID = 0x53505254

func version(ctx context.Context, db transact.Querier) (int, error) {
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

func checkVersion(ctx context.Context, db transact.Querier) error {
	v, err := version(ctx, db)
	if err != nil {
		return err
	}
	return relational.CheckSchema(v, own)
}

// migrate applies what is missing, each step in a transaction of its own.
// Two processes that start together are serialised by the write lock.
func migrate(ctx context.Context, conn *sql.Conn) error {
	steps, err := relational.Migrations(own)
	if err != nil {
		return err
	}
	for {
		done, err := migrateOne(ctx, conn, steps)
		if err != nil || done {
			return err
		}
	}
}

func migrateOne(ctx context.Context, conn *sql.Conn, steps []relational.Migration) (done bool, err error) {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() // after a commit it does nothing
	v, err := version(ctx, tx)
	if err != nil {
		return false, err
	}
	if v == len(steps) {
		return true, nil
	}
	if v > len(steps) {
		return false, relational.TooNew(v, len(steps))
	}
	text := fmt.Sprintf("%s\nPRAGMA application_id = %d; PRAGMA user_version = %d;", steps[v].SQL, applicationID, v+1)
	if _, err := tx.ExecContext(ctx, text); err != nil {
		return false, fmt.Errorf("%s: %w", steps[v].Name, err)
	}
	return false, tx.Commit()
}
