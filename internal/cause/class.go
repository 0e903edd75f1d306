package cause

// ClassError gives an error its own class in table held, such as endpoint_disabled. Only packages
// of this module use it, because metrics count by class, and there must be few classes.
type ClassError struct {
	Class string
	Err   error
}

func (e *ClassError) Error() string { return e.Err.Error() }
func (e *ClassError) Unwrap() error { return e.Err }
