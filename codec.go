package postroom

import (
	"encoding/json"
	"errors"
	"fmt"
)

// codecError says why data did not encode or decode. The texts of package json
// and of a type's own methods quote what they stumbled over; an error that is
// logged must not. They are to be had through Unwrap.
type codecError struct {
	problem string
	err     error
}

func (e *codecError) Error() string { return e.problem }

func (e *codecError) Unwrap() error { return e.err }

// encodeProblem says, without a value, why a value does not encode.
func encodeProblem(err error) string {
	var kind *json.UnsupportedTypeError
	var method *json.MarshalerError
	switch {
	case errors.As(err, &kind):
		return fmt.Sprintf(": JSON has no form for the type %s", kind.Type)
	case errors.As(err, &method):
		return fmt.Sprintf(": the type %s refused", method.Type)
	}
	return ""
}

// decodeProblem says, without a value, why bytes do not decode.
func decodeProblem(err error) string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Sprintf(": it is no JSON from byte %d on", syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Sprintf(": what stands at byte %d does not fit the field %q of type %s", kind.Offset, kind.Field, kind.Type)
	}
	return ""
}
