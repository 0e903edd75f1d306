package postroom

import (
	"encoding/json"
	"fmt"

	"github.com/postroom/postroom/internal/guard"
)

// codecError says why data did not encode or decode. Errors of package json and of a type's
// own methods may quote the data, which must not reach a log. Unwrap returns them.
type codecError struct {
	problem string
	err     error
}

func (e *codecError) Error() string { return e.problem }

func (e *codecError) Unwrap() error { return e.err }

// encode returns a value as JSON, or why it does not encode. If a method of the value
// panics, that is a fault of this value only, so that other events do not suffer.
func encode(value any) (data []byte, fault error) {
	problem := ""
	err := guard.Call(func() (err error) {
		if data, err = json.Marshal(value); err != nil {
			problem = encodeProblem(err)
		}
		return err
	})
	if err == nil {
		return data, nil
	}
	if panicked, ok := err.(*guard.PanicError); ok { //nolint:errorlint // from the guard, or not a panic
		problem = ": a method of its type panicked, in " + panicked.Frame
	}
	return nil, &codecError{problem: "does not encode as JSON" + problem, err: err}
}

// encodeProblem says, without a value, why a value does not encode.
func encodeProblem(err error) string {
	tree := guard.Tree(err) // may contain an error of a user's MarshalJSON
	if kind, _ := guard.As[*json.UnsupportedTypeError](tree); kind != nil {
		return fmt.Sprintf(": JSON has no form for the type %s", kind.Type)
	}
	if method, ok := guard.As[*json.MarshalerError](tree); ok {
		return fmt.Sprintf(": the type %s refused", method.Type)
	}
	return ""
}

// decodeProblem says, without a value, why bytes do not decode.
func decodeProblem(err error) string {
	tree := guard.Tree(err) // may be an error of a user's UnmarshalJSON
	if syntax, _ := guard.As[*json.SyntaxError](tree); syntax != nil {
		return fmt.Sprintf(": it is no JSON from byte %d on", syntax.Offset)
	}
	if kind, _ := guard.As[*json.UnmarshalTypeError](tree); kind != nil {
		return fmt.Sprintf(": what stands at byte %d does not fit the field %q of type %s", kind.Offset, kind.Field, kind.Type)
	}
	return ""
}
