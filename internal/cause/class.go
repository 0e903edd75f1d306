package cause

// ClassError gives an error a class of its own in table held, such as endpoint_disabled. It is
// for packages of this module: metrics count by class, so there must be few.
type ClassError struct {
	Class string
	Err   error
}

func (e *ClassError) Error() string { return e.Err.Error() }
func (e *ClassError) Unwrap() error { return e.Err }
