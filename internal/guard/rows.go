package guard

import "errors"

// Source has the methods of pgx.CopyFromSource, so that this package need not import pgx.
type Source interface {
	Next() bool
	Values() ([]any, error)
	Err() error
}

// Rows guards the rows of a COPY. pgx reads the rows in another goroutine, where a panic would end
// the process. With Rows, a panic ends only the COPY, and [CopyRows.With] returns the panic as an
// error.
func Rows(of Source) *CopyRows { return &CopyRows{of: of} }

// CopyRows are the rows of one COPY.
type CopyRows struct {
	of     Source
	failed error
}

// With returns err, the error of a COPY that has ended. If the rows panicked, err comes from the
// server and has only the text of the panic. Then With returns the panic joined with err.
func (r *CopyRows) With(err error) error {
	if r.failed == nil {
		return err
	}
	return errors.Join(r.failed, err)
}

// Next implements Source.
func (r *CopyRows) Next() (more bool) {
	r.call(func() error { more = r.of.Next(); return nil })
	return more
}

// Values implements Source.
func (r *CopyRows) Values() (values []any, err error) {
	r.call(func() error { values, err = r.of.Values(); return nil })
	if r.failed != nil {
		return nil, r.failed
	}
	return values, err
}

// Err implements Source.
func (r *CopyRows) Err() (err error) {
	r.call(func() error { err = r.of.Err(); return nil })
	if r.failed != nil {
		return r.failed
	}
	return err
}

func (r *CopyRows) call(f func() error) {
	if err := Call(f); err != nil && r.failed == nil {
		r.failed = err
	}
}
