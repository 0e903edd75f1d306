package lent

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// rows are the rows of a query. Between two calls, another goroutine may take the connection. But pgx
// refuses another statement until the rows are closed.
type rows struct {
	pgx.Rows

	loan *loan
	err  error // why a call could not take the connection
}

// Next implements pgx.Rows.
func (r *rows) Next() bool {
	if r.err = r.loan.take(); r.err != nil {
		return false
	}
	defer r.loan.leave()
	return r.Rows.Next()
}

// Scan implements pgx.Rows.
func (r *rows) Scan(dest ...any) error {
	if r.err = r.loan.take(); r.err != nil {
		return r.err
	}
	defer r.loan.leave()
	return r.loan.failed(r.Rows.Scan(dest...))
}

// Values implements pgx.Rows.
func (r *rows) Values() ([]any, error) {
	if r.err = r.loan.take(); r.err != nil {
		return nil, r.err
	}
	defer r.loan.leave()
	return r.Rows.Values()
}

// Close implements pgx.Rows.
func (r *rows) Close() {
	if err := r.loan.take(); err != nil {
		r.err = err
		return
	}
	defer r.loan.leave()
	r.Rows.Close()
}

// Err implements pgx.Rows.
func (r *rows) Err() error {
	if r.err != nil {
		return r.err
	}
	return r.loan.failed(r.Rows.Err())
}

// Conn implements pgx.Rows.
func (r *rows) Conn() *pgx.Conn { return r.loan.of.Conn() }

// none are the rows of a query that was not sent.
func none(err error) pgx.Rows {
	found, _ := pgx.FailedBatchResults(&pgx.Batch{}, err).Query() // the error is that of the rows
	return found
}

// row is the row of a query.
type row struct {
	row  pgx.Row
	loan *loan
	err  error // why the query was not sent
}

// Scan implements pgx.Row.
func (r row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	if err := r.loan.take(); err != nil {
		return err
	}
	defer r.loan.leave()
	return r.loan.failed(r.row.Scan(dest...))
}

// results are the results of a batch.
type results struct {
	pgx.BatchResults

	loan *loan
}

// Exec implements pgx.BatchResults.
func (r *results) Exec() (pgconn.CommandTag, error) {
	if err := r.loan.take(); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer r.loan.leave()
	tag, err := r.BatchResults.Exec()
	return tag, r.loan.failed(err)
}

// Query implements pgx.BatchResults.
func (r *results) Query() (pgx.Rows, error) {
	if err := r.loan.take(); err != nil {
		return none(err), err
	}
	defer r.loan.leave()
	found, err := r.BatchResults.Query()
	return &rows{Rows: found, loan: r.loan}, r.loan.failed(err)
}

// QueryRow implements pgx.BatchResults.
func (r *results) QueryRow() pgx.Row {
	if err := r.loan.take(); err != nil {
		return row{err: err}
	}
	defer r.loan.leave()
	return row{r.BatchResults.QueryRow(), r.loan, nil}
}

// Close implements pgx.BatchResults.
func (r *results) Close() error {
	if err := r.loan.take(); err != nil {
		return err
	}
	defer r.loan.leave()
	return r.loan.failed(r.BatchResults.Close())
}
