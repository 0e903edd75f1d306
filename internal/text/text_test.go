package text_test

import (
	"testing"

	"github.com/postroom/postroom/internal/text"
)

func TestValid(t *testing.T) {
	for s, want := range map[string]bool{"": true, "grün": true, "a\nb": true, "a\x00b": false, "\xff": false} {
		if got := text.Valid(s); got != want {
			t.Errorf("Valid(%q) = %t, want %t", s, got, want)
		}
	}
}

func TestEscapeControls(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`{"a": "b"}`:               `{"a": "b"}`,
		"[\"\u007f\u009b2J\"]":     `["\u007f\u009b2J"]`,
		"\"\u0080é\u009f©\u00a0\"": "\"\\u0080é\\u009f©\u00a0\"", // é and © have bytes of this range too
	} {
		if got := string(text.EscapeControls([]byte(given))); got != want {
			t.Errorf("%q becomes %q, want %q", given, got, want)
		}
	}
}

func TestWord(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"shop.mail/order-7:a,b": "shop.mail/order-7:a,b", "": "''", "order.>": "'order.>'", "order.*": "'order.*'", "$(reboot)": "'$(reboot)'", "a'; reboot; '": `'a'\''; reboot; '\'''`, "a\nb": "'a\nb'", "é": "'é'",
	} {
		if got := text.Word(given); got != want {
			t.Errorf("%q becomes %s, want %s", given, got, want)
		}
	}
}
