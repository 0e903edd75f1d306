package guard

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Text returns the text of an error, of at most n bytes, as a column and a line of a log
// take it. It calls the error's method, so it is called inside a guard.
func Text(err error, n int) string { return Clean(err.Error(), n) }

// Clean makes a text one that a column takes: valid UTF-8 without NUL, of n bytes at the
// most and an ellipsis where something was cut off. It looks at no more than it keeps,
// and the result does not keep a longer text in memory.
func Clean(s string, n int) string {
	if len(s) <= n {
		return clean(s)
	}
	cut := clean(strings.Clone(s[:n]))
	// The cut may have split a character, which is no fault of the text.
	return strings.TrimRight(cut, "\uFFFD") + "…"
}

func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// describe returns the text of the value of a panic. It calls the methods that say it, if
// the value has any: these may panic too.
func describe(v any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a value of type %T, whose own method panicked when it was asked for its text", v)
		}
	}()
	switch v := v.(type) {
	case error:
		return Text(v, MaxText)
	case fmt.Stringer:
		return Clean(v.String(), MaxText)
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.String:
		return Clean(r.String(), MaxText)
	case reflect.Bool:
		return strconv.FormatBool(r.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(r.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return strconv.FormatUint(r.Uint(), 10)
	case reflect.Float32, reflect.Float64:
		return strconv.FormatFloat(r.Float(), 'g', -1, 64)
	default: // printing it could take for ever, and show a payload
		return fmt.Sprintf("a value of type %T", v)
	}
}
