package guard

import "reflect"

// mostErrors is the largest number of errors of one tree that Tree visits. Tree needs this limit,
// because the tree of an error that contains itself has no end.
const mostErrors = 256

// Tree returns err and the errors inside it, in the order in which errors.Is visits them,
// at most 256. It calls the errors' Unwrap methods, so call it only inside a guard.
func Tree(err error) []error {
	var all []error
	for rest := []error{err}; len(rest) > 0 && len(all) < mostErrors; {
		e := rest[len(rest)-1]
		rest = rest[:len(rest)-1]
		if e == nil {
			continue
		}
		all = append(all, e)
		switch e := e.(type) { //nolint:errorlint // errors.Is does the same, but without a limit
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

// Is does what errors.Is does, for a tree that [Tree] returned. It calls the errors' Is
// methods.
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

// As does what errors.As does, for a tree that [Tree] returned. It calls the errors' As
// methods.
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

// SealedError wraps a user's error that this module returns to the user's code. It has the text
// that the error had when it was sealed, with a limited length. errors.Is and errors.As search the
// tree of the user's error, but visit at most 256 errors and do not panic.
type SealedError struct {
	text string
	err  error
}

// Seal returns err as a [*SealedError], and nil for nil. If err.Error panics, Seal returns a
// [*PanicError].
func Seal(err error) error {
	if err == nil {
		return nil
	}
	if sealed, ok := err.(*SealedError); ok { //nolint:errorlint // only err itself, because an error that contains a SealedError is not sealed
		return sealed
	}
	s := &SealedError{err: err}
	if failed := Call(func() error { s.text = Text(err, MaxText); return nil }); failed != nil {
		return failed
	}
	return s
}

func (s *SealedError) Error() string { return s.text }

// Seals reports whether err is the error that was sealed.
func (s *SealedError) Seals(err error) bool {
	return reflect.ValueOf(err).Comparable() && s.err == err //nolint:errorlint // only err itself
}

// Is is errors.Is for the sealed error.
func (s *SealedError) Is(target error) (is bool) {
	_ = Call(func() error { is = Is(Tree(s.err), target); return nil }) // if a method panics, Is returns false
	return is
}

// As is errors.As for the sealed error.
func (s *SealedError) As(target any) (found bool) {
	_ = Call(func() error { // if a method panics, As returns false
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
