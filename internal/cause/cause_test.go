package cause_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/postroom/postroom/internal/cause"
)

func TestWording(t *testing.T) {
	tests := []struct {
		name, one, other string
		same             bool
	}{
		{"the same text", "card declined", "card declined", true},
		{"another text", "card declined", "card expired", false},
		{"numbers", "order 4711 has no stock of 3", "order 9 has no stock of 12", true},
		{"identifiers", "customer 0192f0c1-aa is gone", "customer 0192f0c1-bb is gone", true},
		{"the event's own key", "account alice is closed", "account bob is closed", true},
		{"with punctuation", "closed: alice, for good", "closed: bob, for good", true},
		{"a key of two words", "account of Alice Liddell is closed", "account of Bob Builder is closed", true},
		{"quoted", `no such plan "gold"`, `no such plan "silver and more"`, true},
		{"single quotes", "no such plan 'gold'", "no such plan 'silver'", true},
		{"an apostrophe quotes nothing", "can't charge it, won't retry", "can't refund it, won't retry", false},
		{"typographic quotes", "no plan “gold” here", "no plan “silver” here", true},
		{"a quote that is not closed", `broken "here`, `broken "there`, false},
		{"addresses", "dial 10.0.0.1:443: refused", "dial 10.0.0.2:443: refused", true},
		{"mail", "mail to a@b.c bounced", "mail to d@e.f bounced", true},
		{"paths", "open /tmp/a: no such file", "open /tmp/b/c: no such file", true},
		{"assignments", "plan=gold is not sold", "plan=silver is not sold", true},
		{"of different names", "plan=gold is not sold", "colour=gold is not sold", false},
		{"long words", "token " + strings.Repeat("x", 40), "token " + strings.Repeat("y", 50), true},
		{"capitals", "Card declined", "card declined", true},
		{"the first line counts", "card declined\nat noon", "card declined\nat midnight", true},
		{"what is far behind does not", strings.Repeat("word ", 30) + "a", strings.Repeat("word ", 30) + "b", true},
		{"broken text", "card \xff declined", "card declined", true},
	}
	known := map[bool][]string{false: {"alice", "Alice Liddell"}, true: {"bob", "Bob Builder"}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			one, other := cause.Wording(tt.one, known[false]...), cause.Wording(tt.other, known[true]...)
			if (one == other) != tt.same {
				t.Errorf("%q and %q: same = %v, want %v", one, other, one == other, tt.same)
			}
		})
	}
}

// Failures of an event without a key have the same causes as those of an event with a key.
func TestWordingWithoutAKey(t *testing.T) {
	const text = "card declined - try again: ..."
	if one, other := cause.Wording(text, "", "e1"), cause.Wording(text, "k1", "e1"); one != other {
		t.Errorf("without a key %q, with one %q", one, other)
	}
}

func FuzzWording(f *testing.F) {
	f.Add("can't charge “gold” of 'alice", "alice", "")
	f.Add("\xe2\x80 \"\xff`", "\xff", "“”")
	f.Fuzz(func(t *testing.T, text, one, other string) {
		wording := cause.Wording(text, one, other)
		if again := cause.Wording(text, one, other); again != wording || !utf8.ValidString(wording) {
			t.Errorf("%q, then %q", wording, again)
		}
	})
}

func TestFingerprintTellsItsParts(t *testing.T) {
	base := cause.Fingerprint("billing.charge", "error", "", "card declined")
	if len(base) != 16 {
		t.Fatalf("a fingerprint has %d bytes, want 16", len(base))
	}
	others := map[string][]byte{
		"handler": cause.Fingerprint("billing.refund", "error", "", "card declined"),
		"class":   cause.Fingerprint("billing.charge", "permanent", "", "card declined"),
		"place":   cause.Fingerprint("billing.charge", "error", "charge_fk", "card declined"),
		"text":    cause.Fingerprint("billing.charge", "error", "", "card expired"),
	}
	for part, other := range others {
		if bytes.Equal(base, other) {
			t.Errorf("failures with another %s have one fingerprint", part)
		}
	}
}
