package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Every flag of every command refuses a value that cannot be meant: the exit status is 2, and the
// error says what the flag wants, without words of the Go API.
func TestFlagsRefuseWrongValues(t *testing.T) {
	t.Parallel()
	env := environment{"DATABASE_URL": "postgres://127.0.0.1:1/none", "NATS_URL": "nats://127.0.0.1:1"} // no command connects to them
	wrong := map[string][]string{
		"int": {"-1", "1.5", "many"}, "int64": {"-1", "many"}, "float64": {"-1", "NaN", "+Inf", "many"}, "duration": {"-1s", "7", "soon"}, "bool": {"maybe"},
		"string": {""}, "stringSlice": {""}, "stringArray": {""},
	}
	allowed := []string{
		"postroom relay --retention=-1s", // for ever
		"postroom relay --listen=",       // no endpoints
		"postroom webhook send --age=-1s",
		"postroom webhook send --data=",
		"postroom dead edit --header=", // no headers
		"postroom dead resolve --result=",
	}
	ended, end := context.WithCancel(t.Context()) // a command that does not refuse its flags ends at once
	end()
	tried := 0
	for _, cmd := range commands(newRoot(func(string) string { return "" })) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			values, known := wrong[f.Value.Type()]
			if !known {
				t.Errorf("%s --%s: the test has no wrong value of type %s", cmd.CommandPath(), f.Name, f.Value.Type())
			}
			if f.Name == "after" || f.Name == "reason" { // scripts give them empty: the first page, no reason
				values = nil
			}
			for _, value := range values {
				line := cmd.CommandPath() + " --" + f.Name + "=" + value
				if slices.Contains(allowed, line) {
					continue
				}
				tried++
				args := append(strings.Fields(cmd.CommandPath())[1:], "--"+f.Name+"="+value)
				r := postroomUntil(ended, env, args...)
				if r.code != exitUsage || !strings.Contains(r.errors, "--"+f.Name) {
					t.Errorf("%s: exit status %d, %s", line, r.code, r.errors)
				}
				for _, word := range []string{"strconv", "time:", "Parse"} {
					if strings.Contains(r.errors, word) {
						t.Errorf("%s: an error with %q: %s", line, word, r.errors)
					}
				}
			}
		})
	}
	if tried < 200 {
		t.Errorf("%d values were tried: the test looks for flags in the wrong way", tried)
	}
}

func TestWrongValuesAreUsageErrors(t *testing.T) {
	t.Parallel()
	env := environment{"DATABASE_URL": "postgres://127.0.0.1:1/none", "NATS_URL": "nats://127.0.0.1:1"} // no command connects to them
	ended, end := context.WithCancel(t.Context())                                                       // a command that does not refuse its flags ends at once
	end()
	for _, tt := range []struct{ line, says string }{
		{"replay list --limit 0", "1 to 1000"},
		{"dead discard --all --reason x --limit 0", "want at least 1"},
		{"dead reopen --all --limit -1", "want at least 1"},
		{"held retry --all --limit 0", "want at least 1"},
		{"dead list --limit 1001", "want 1 to 1000"},
		{"dead list --cause zz", "want 32 hexadecimal digits"},
		{"dead groups --since 1h --until 2h", "--since must be before --until"},
		{"dead groups --since 1h --until 1h", "--since must be before --until"},
		{"dead export --since 2026-01-02 --until 2026-01-01", "--since must be before --until"},
		{"events list --since 1h --until 2h", "--since must be before --until"},
		{"held list --due-since 1h --due-until 2h", "--due-since must be before --due-until"},
		{"held cancel --due-since 1h --due-until 2h --reason x", "--due-since must be before --due-until"},
		{"events list --trace zz", "want a trace id"},
		{"events list --after zz", "want the value that the last page printed"},
		{"audit --after zz", "want the value that the last page printed"},
		{"replay list --after zz", "--after: want the value that the last page printed"},
		{"republish list --after 0", "--after: want the value that the last page printed"},
		{"audit --after 0", "want the value that the last page printed"},
		{"held list --after zz", "want the value that the last page printed"},
		{"saga list --after zz", "want the value that the last page printed"},
		{"dead replay --all --rate 0", "want a number above 0"},
		{"dead replay --all --stop-at 2", "want 0 to 1"},
		{"dead replay --all --stop-at 1.01", "want 0 to 1"},
		{"dead replay --all --attempts 0", "want 1 to 1000"},
		{"dead replay --all --dry-run --wait 0s", "want a duration"},
		{"dead edit 1 --header a=b --header a=c", "--header a is given twice"},
		{"dead discard --key a --key b --reason x", "it is given twice"},
		{"events list --type a --type b", "it is given twice"},
		{"reconcile --rate 2000000", "want a number above 0"},
		{"tables --retention 0s", "want a positive duration"},
		{"saga retry checkout o1 --revision 0", "want at least 1"},
		{"handlers pause billing --reason x --for 500ms", "want a duration of at least 1s"},
		{"relay pause --reason x --for 500ms", "want a duration of at least 1s"},
		{"webhook resend ep_7 --since yesterday", "--since: write a time"},
	} {
		postroomUntil(ended, env, strings.Fields(tt.line)...).want(t, exitUsage).says(t, tt.says)
	}
	for _, args := range [][]string{
		{"handlers", "pause", "", "--reason", "x"},
		{"handlers", "pause", strings.Repeat("h", 129), "--reason", "x"},
		{"handlers", "resume", ""},
		{"webhook", "rotate", ""},
		{"webhook", "test", ""},
		{"webhook", "add", ""},
		{"webhook", "send", "", "--scheme", "hmac"},
		{"stream", "ensure", "", "--subjects", "a.>"},
		{"stream", "ensure", "a b", "--subjects", "a.>"},
		{"stream", "check", ""},
		{"saga", "show", "checkout", ""},
		{"saga", "show", "", "o1"},
		{"events", "show", ""},
		{"events", "tree", ""},
		{"dead", "discard", "1", "--reason", strings.Repeat("x", 4097)},
		{"dead", "discard", "1", "--reason", "x", "--actor", strings.Repeat("x", 256)},
	} {
		if r := postroomUntil(ended, env, args...); r.code != exitUsage {
			t.Errorf("%.60q: exit status %d, %s", args, r.code, r.errors)
		}
	}
}
