package cause

// ClassError gives an error its own class in the table held, like endpoint_disabled. Metrics count
// by class, so there must be few classes. Therefore only packages of this module use ClassError.
type ClassError struct {
	Class string
	Err   error
}

func (e *ClassError) Error() string { return e.Err.Error() }
func (e *ClassError) Unwrap() error { return e.Err }

// WaitError says that an event only waits for its turn. Nothing failed, so the inbox logs the wait
// only at level debug.
type WaitError struct{ Err error }

func (e *WaitError) Error() string { return e.Err.Error() }
func (e *WaitError) Unwrap() error { return e.Err }
