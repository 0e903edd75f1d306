package guard

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Text passes the text of an error to Clean and returns the result. It calls err.Error, which may
// panic, so call Text only inside a guard.
func Text(err error, n int) string { return Clean(err.Error(), n) }

// Clean returns a text that a column accepts: valid UTF-8 without NUL. If s is longer than n bytes,
// Clean cuts s after n bytes and adds an ellipsis. It replaces NUL and invalid bytes with U+FFFD,
// so the result may be longer than n bytes. Clean reads only the first n bytes, and the result does
// not keep a longer text in memory.
func Clean(s string, n int) string {
	if len(s) <= n {
		return clean(s)
	}
	cut := clean(strings.Clone(s[:n]))
	// The cut may have split a character, which clean then replaced. Remove the replacement.
	return strings.TrimRight(cut, "\uFFFD") + "…"
}

func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// describe returns the text of the value of a panic. If the value has a method that
// returns its text, describe calls it. That method may panic too.
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
	default: // printing the value could take for ever, and could show a payload
		return fmt.Sprintf("a value of type %T", v)
	}
}
