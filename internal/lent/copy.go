package lent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postroom/postroom/internal/guard"
)

// CopyFrom works like CopyFrom of pgx.Tx. A panic in a method of from, or of a value in its rows,
// becomes an error.
func (t *Tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, from pgx.CopyFromSource) (int64, error) {
	if err := t.loan.take(); err != nil {
		return 0, err
	}
	defer t.loan.leave()
	t.loan.see("COPY", nil)
	if first, isLent := t.tx.(*Tx); isLent {
		n, err := first.CopyFrom(ctx, table, columns, from)
		return n, t.loan.failed(err)
	}
	rows := &copied{CopyFromSource: from, types: t.tx.Conn().TypeMap()}
	n, err := rows.copyTo(ctx, t.tx, table, columns)
	return n, t.loan.failed(err)
}

// copied guards the rows of a COPY. pgx reads and encodes them in a goroutine of its own, where a
// panic in a user's code would end the process: in a method of the rows, or of a value, such as
// Value or MarshalJSON. So copied encodes each value first, in a guard, and forgets the result.
type copied struct {
	pgx.CopyFromSource

	types  *pgtype.Map
	fields []pgconn.FieldDescription
	buf    []byte
	failed error
}

func (c *copied) copyTo(ctx context.Context, tx pgx.Tx, table pgx.Identifier, columns []string) (int64, error) {
	names := make([]string, len(columns))
	for i, column := range columns {
		names[i] = pgx.Identifier{column}.Sanitize()
	}
	row, err := tx.Prepare(ctx, "", "select "+strings.Join(names, ", ")+" from "+table.Sanitize()) // says which types the columns have
	if err != nil {
		return 0, err
	}
	c.fields = row.Fields
	n, err := tx.CopyFrom(ctx, table, columns, c)
	if c.failed != nil { // err comes from the server, and has only the text of the panic
		err = errors.Join(c.failed, err)
	}
	return n, err
}

// Next implements pgx.CopyFromSource.
func (c *copied) Next() (more bool) {
	c.call(func() error { more = c.CopyFromSource.Next(); return nil })
	return more
}

// Values implements pgx.CopyFromSource.
func (c *copied) Values() (values []any, err error) {
	c.call(func() error {
		values, err = c.CopyFromSource.Values()
		//guard:values-of-a-copy-are-encoded-in-a-guard do func() { defer func() { _ = recover() }(); c.try(values) }(); values = nil
		c.try(values)
		return nil
	})
	switch {
	case c.failed != nil:
		return nil, c.failed
	case err != nil: // wrapped, because pgx takes io.EOF for the end
		return nil, fmt.Errorf("values of a COPY: %w", err)
	}
	return values, nil
}

// try encodes values as pgx does: if a value has no binary form, pgx takes its text.
func (c *copied) try(values []any) {
	for i, v := range values[:min(len(values), len(c.fields))] {
		buf, err := c.types.Encode(c.fields[i].DataTypeOID, pgx.BinaryFormatCode, v, c.buf[:0])
		if err != nil {
			buf, err = c.types.Encode(c.fields[i].DataTypeOID, pgx.TextFormatCode, v, c.buf[:0])
		}
		if err == nil { // pgx tells the error
			c.buf = buf
		}
	}
}

// Err implements pgx.CopyFromSource.
func (c *copied) Err() (err error) {
	c.call(func() error { err = c.CopyFromSource.Err(); return nil })
	if c.failed != nil {
		return c.failed
	}
	return err
}

func (c *copied) call(f func() error) {
	if err := guard.Call(f); err != nil && c.failed == nil {
		c.failed = err
	}
}
