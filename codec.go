package postroom

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/jsonfit"
)

// codecError says why data did not encode or decode. Its text does not contain the data, because
// data must not reach a log. Unwrap returns the original error, which may quote the data. The
// original error comes from package json or from a method of the type.
type codecError struct {
	problem string
	err     error
}

func (e *codecError) Error() string { return e.problem }

func (e *codecError) Unwrap() error { return e.err }

// encode returns a value as JSON, or why the value does not encode. If a method of the value
// panics, the panic is returned as the fault, so that the panic does not end the process.
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

// encodeProblem says why a value does not encode. The text does not quote the value.
func encodeProblem(err error) string {
	tree := guard.Tree(err) // may contain an error from a user's MarshalJSON
	if kind, _ := guard.As[*json.UnsupportedTypeError](tree); kind != nil {
		return fmt.Sprintf(": JSON has no form for the type %s", kind.Type)
	}
	if method, ok := guard.As[*json.MarshalerError](tree); ok {
		return fmt.Sprintf(": the type %s refused", method.Type)
	}
	return ""
}

// decode decodes the data of an event into v. The error is permanent. If strict is true, decode refuses
// fields that the Go type lacks.
func decode(ev Event, v any, strict bool) error {
	fault := func(problem string, err error) error {
		return Permanent(&codecError{problem: "data of " + clip(ev.Type) + " does not decode" + problem, err: err})
	}
	read := json.Unmarshal
	if strict {
		read = unmarshalStrictly
	}
	if err := read(ev.Data, v); err != nil {
		return fault(decodeProblem(err), err)
	}
	//guard:no-handler-runs-with-zero-values false
	if problem := jsonfit.Problem(ev.Data, reflect.ValueOf(v).Elem()); problem != "" {
		return fault(problem, nil)
	}
	return nil
}

// unmarshalStrictly is json.Unmarshal, and refuses fields that the Go type lacks.
func unmarshalStrictly(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	//guard:a-strict-type-refuses-unknown-fields remove
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	//guard:a-strict-type-reads-all-data false
	if end := d.InputOffset(); len(bytes.TrimSpace(data[end:])) > 0 {
		return &json.SyntaxError{Offset: end + 1}
	}
	return nil
}

// decodeProblem says why bytes do not decode. The text does not quote the bytes.
func decodeProblem(err error) string {
	tree := guard.Tree(err) // may be an error from a user's UnmarshalJSON
	//guard:an-error-that-is-nil-does-not-panic = func() bool { _, ok := guard.As[*json.SyntaxError](tree); return ok }()
	if syntax, _ := guard.As[*json.SyntaxError](tree); syntax != nil {
		return fmt.Sprintf(": it is no JSON from byte %d on", syntax.Offset)
	}
	if kind, _ := guard.As[*json.UnmarshalTypeError](tree); kind != nil {
		return fmt.Sprintf(": the value at byte %d does not fit the field %q of type %s", kind.Offset, kind.Field, kind.Type)
	}
	unknown := false
	_ = guard.Call(func() error { // the error may be of a user's type, whose method panics
		unknown = strings.HasPrefix(err.Error(), "json: unknown field ")
		return nil
	})
	if unknown {
		return ": it has a field that its Go type lacks"
	}
	return ""
}
