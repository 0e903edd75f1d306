package guard

import "reflect"

// mostErrors is how many errors of one tree are looked at: one that contains itself has
// no end.
const mostErrors = 256

// Tree returns the errors that err is made of, in the order in which errors.Is visits
// them, at most 256. It calls the errors' Unwrap methods, so it is called inside a guard.
func Tree(err error) []error {
	var all []error
	for rest := []error{err}; len(rest) > 0 && len(all) < mostErrors; {
		e := rest[len(rest)-1]
		rest = rest[:len(rest)-1]
		if e == nil {
			continue
		}
		all = append(all, e)
		switch e := e.(type) { //nolint:errorlint // it is what errors.Is does, with an end
		case interface{ Unwrap() error }:
			rest = append(rest, e.Unwrap())
		case interface{ Unwrap() []error }:
			parts := e.Unwrap()
			for i := min(len(parts), mostErrors) - 1; i >= 0; i-- {
				rest = append(rest, parts[i])
			}
		}
	}
	return all
}

// Is reports what errors.Is reports, for a tree that [Tree] returned. It calls the
// errors' Is methods.
func Is(tree []error, target error) bool {
	comparable := reflect.TypeOf(target).Comparable()
	for _, e := range tree {
		if comparable && e == target { //nolint:errorlint // it is what errors.Is does
			return true
		}
		if is, ok := e.(interface{ Is(error) bool }); ok && is.Is(target) {
			return true
		}
	}
	return false
}

// As returns what errors.As finds, for a tree that [Tree] returned. It calls the errors'
// As methods.
func As[T error](tree []error) (found T, ok bool) {
	for _, e := range tree {
		if found, ok = e.(T); ok { //nolint:errorlint // it is what errors.As does
			return found, true
		}
		if as, has := e.(interface{ As(target any) bool }); has && as.As(&found) {
			return found, true
		}
	}
	return found, false
}

// SealedError is an error of a user's that goes back to a caller of the user's. Its text is
// made once, and is bounded; errors.Is and errors.As find what they would have found,
// but do not panic, and have an end.
type SealedError struct {
	text string
	err  error
}

// Seal seals an error. It is nil for nil. An error whose methods panic is a [*PanicError].
func Seal(err error) error {
	if err == nil {
		return nil
	}
	if sealed, ok := err.(*SealedError); ok { //nolint:errorlint // one within another is not sealed as a whole
		return sealed
	}
	s := &SealedError{err: err}
	if failed := Call(func() error { s.text = Text(err, MaxText); return nil }); failed != nil {
		return failed
	}
	return s
}

func (s *SealedError) Error() string { return s.text }

// Is is errors.Is for the sealed error.
func (s *SealedError) Is(target error) (is bool) {
	_ = Call(func() error { is = Is(Tree(s.err), target); return nil }) // one that panics is nothing that is known
	return is
}

// As is errors.As for the sealed error.
func (s *SealedError) As(target any) (found bool) {
	_ = Call(func() error { // as above
		into := reflect.ValueOf(target).Elem()
		for _, e := range Tree(s.err) {
			if reflect.TypeOf(e).AssignableTo(into.Type()) {
				into.Set(reflect.ValueOf(e))
				found = true
				return nil
			}
			if as, has := e.(interface{ As(target any) bool }); has && as.As(target) {
				found = true
				return nil
			}
		}
		return nil
	})
	return found
}
