package steps

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/jsonfit"
)

// resultError says that a result did not encode or decode. Its text does not contain the result,
// because a result must not reach a log. Unwrap returns the error of package json, which may quote
// it.
type resultError struct {
	problem string
	err     error
}

func (e *resultError) Error() string { return e.problem }
func (e *resultError) Unwrap() error { return e.err }

// encode returns the result of a call as JSON.
func encode(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, &resultError{fmt.Sprintf("the call succeeded, but its result does not encode as JSON: it is a %T", value), err}
	}
	return text, nil
}

// decode decodes the recorded result of a step.
func decode(text []byte, into any) error {
	err, where := json.Unmarshal(text, into), ""
	if err == nil {
		where = jsonfit.Problem(text, reflect.ValueOf(into).Elem())
		//guard:a-recorded-result-of-another-shape-is-told true
		if where == "" {
			return nil
		}
	}
	if kind, ok := guard.As[*json.UnmarshalTypeError](guard.Tree(err)); ok && kind != nil {
		where = fmt.Sprintf(": the value at byte %d does not fit the field %q of type %s", kind.Offset, kind.Field, kind.Type)
	}
	return &resultError{fmt.Sprintf("the step is done, but its recorded result does not decode into the type %s%s", reflect.TypeOf(into).Elem(), where), err}
}
