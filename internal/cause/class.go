package cause

// ClassError gives an error its own class in the table held, like endpoint_disabled. Metrics count
// by class, so there must be few classes. Therefore only packages of this module use ClassError.
type ClassError struct {
	Class string
	Err   error
}

func (e *ClassError) Error() string { return e.Err.Error() }
func (e *ClassError) Unwrap() error { return e.Err }
