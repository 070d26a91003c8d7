package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"sallyport.dev/sallyport/store/transact"
)

// pipeline sends statements in one round trip. For each that reads it returns the
// first row, nil if there is none.
func pipeline(ctx context.Context, conn *sql.Conn, all []transact.Statement) (rows [][]driver.Value, err error) {
	err = conn.Raw(func(c any) (err error) {
		std, ok := c.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("a connection of another driver: %T", c)
		}
		var b pgx.Batch
		for _, s := range all {
			b.Queue(s.SQL, s.Args...)
		}
		results := std.Conn().SendBatch(ctx, &b)
		defer func() { err = errors.Join(err, results.Close()) }()
		rows = make([][]driver.Value, len(all))
		for i, s := range all {
			if s.Read {
				rows[i], err = firstRow(results)
			} else {
				err = carriedOut(results, s)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return rows, err
}

func carriedOut(results pgx.BatchResults, s transact.Statement) error {
	tag, err := results.Exec()
	if err != nil {
		return err
	}
	if s.SQL == commit && tag.String() != commit {
		return errors.New("the transaction had failed, and was rolled back")
	}
	return s.Changed(tag.RowsAffected())
}

const commit = "COMMIT"

func firstRow(results pgx.BatchResults) (row []driver.Value, err error) {
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	if rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return nil, err
		}
		for _, v := range values {
			row = append(row, v)
		}
	}
	rows.Close()
	return row, rows.Err()
}
