package guard

import "errors"

// Source is pgx.CopyFromSource, which this package need not import for it.
type Source interface {
	Next() bool
	Values() ([]any, error)
	Err() error
}

// Rows guards the rows of a COPY: pgx reads them in a goroutine of its own, where a panic
// would end the process. A panic ends the COPY, and is the error of [CopyRows.With].
func Rows(of Source) *CopyRows { return &CopyRows{of: of} }

// CopyRows are the rows of one COPY.
type CopyRows struct {
	of     Source
	failed error
}

// With returns the error of the COPY, which has ended: the server's, which has no more of
// a panic than its text, and the panic.
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
