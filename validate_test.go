package postroom_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom"
)

// secret is a part of every faulty value. Validate's errors must not contain it.
const secret = "hunter2"

func TestValidateAccepts(t *testing.T) {
	tests := []struct {
		name   string
		change func(*postroom.Event)
	}{
		{"an event with nothing but a type", func(*postroom.Event) {}},
		{"everything filled in", func(ev *postroom.Event) {
			*ev = postroom.Event{
				ID: "018f-1", Source: "/shop", Type: "order.placed", Subject: "orders.eu", Key: "o-1", Time: time.Now(), NotBefore: time.Now(),
				ContentType: "application/json; charset=utf-8", Data: []byte("{}"), Headers: map[string]string{"x-tenant": "a"},
				CorrelationID: "c-1", CausationID: "e-1", TraceParent: "00-a-b-01", TraceState: "v=1", LoggedAt: time.Now(),
			}
		}},
		{"an id that is any text", func(ev *postroom.Event) { ev.ID = `Größe/😀:"%20"?a=b&c=<d>` }},
		{"a source that is a URL", func(ev *postroom.Event) { ev.Source = "https://shop.example/eu?x=1" }},
		{"a type of one letter", func(ev *postroom.Event) { ev.Type = "a" }},
		{"a type of all the characters there are", func(ev *postroom.Event) { ev.Type = "AZ-az_09.-._.0" }},
		{"a subject that is not the type", func(ev *postroom.Event) { ev.Subject = "SHOP.orders" }},
		{"a key with white space, '#' and percent within", func(ev *postroom.Event) { ev.Key = `order "7" # 50 % Größe 😀` }},
		{"a correlation with '#' and white space within", func(ev *postroom.Event) { ev.CorrelationID = "run #1 of 2" }},
		{"a cause with '#' and white space within", func(ev *postroom.Event) { ev.CausationID = "stream@2026#7 b" }},
		{"a body that is no JSON", func(ev *postroom.Event) { ev.Data = []byte{0, 0xff, '\n'} }},
		{"an empty body", func(ev *postroom.Event) { ev.Data = []byte{} }},
		{"no time", func(ev *postroom.Event) { ev.Time = time.Time{} }},
		{"the first instant after zero", func(ev *postroom.Event) { ev.Time = time.Time{}.Add(1) }},
		{"the last instant of the year 9999", func(ev *postroom.Event) { ev.Time = time.Date(10000, 1, 1, 0, 0, 0, -1, time.UTC) }},
		{"the year 10000 by its own clock, 9999 by UTC", func(ev *postroom.Event) {
			ev.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600))
		}},
		{"an empty map of headers", func(ev *postroom.Event) { ev.Headers = map[string]string{} }},
		{"an empty header", func(ev *postroom.Event) { ev.Headers = map[string]string{"x-tenant": ""} }},
		{"a header with text of any kind", func(ev *postroom.Event) { ev.Headers = map[string]string{"x-tenant": `a: b, "Größe" 😀 %`} }},
		{"a header name of all the characters there are", func(ev *postroom.Event) { ev.Headers = map[string]string{"-_AZaz09": ""} }},
		{"headers that only look reserved", func(ev *postroom.Event) {
			ev.Headers = map[string]string{
				"nats": "", "ce": "", "ce_id": "", "postroom": "", "nats_msg-id": "", "x-nats-msg-id": "", "x-ce-id": "",
				"traceparent2": "", "content-types": "", "statuses": "",
			}
		}},
		{"what only reading sets", func(ev *postroom.Event) { ev.LoggedAt = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev := postroom.Event{Type: "order.placed"}
			tt.change(&ev)
			if err := ev.Validate(); err != nil {
				t.Errorf("Validate = %v, want nil", err)
			}
		})
	}
}

func TestValidateReports(t *testing.T) {
	type change = func(*postroom.Event)
	type row struct {
		name    string
		change  change
		field   string
		problem string
	}
	header := func(name, value string) change {
		return func(ev *postroom.Event) { ev.Headers = map[string]string{name: value} }
	}

	tests := []row{
		{"no type", func(ev *postroom.Event) { ev.Type = "" }, "Type", "is empty"},
		{"a time before the year 1", func(ev *postroom.Event) { ev.Time = time.Time{}.Add(-1) }, "Time", "years 1 to 9999"},
		{"a time after the year 9999", func(ev *postroom.Event) { ev.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, "Time", "years 1 to 9999"},
		{"the year 9999 by its own clock, 10000 by UTC", func(ev *postroom.Event) {
			ev.Time = time.Date(10000, 1, 1, 0, 0, 0, -1, time.FixedZone("", -3600))
		}, "Time", "years 1 to 9999"},
		{"the year 1 by its own clock, 0 by UTC", func(ev *postroom.Event) {
			ev.Time = time.Date(1, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600))
		}, "Time", "years 1 to 9999"},
		{"a time to publish at before the year 1", func(ev *postroom.Event) { ev.NotBefore = time.Time{}.Add(-1) }, "NotBefore", "years 1 to 9999"},
		{"a time to publish at after the year 9999", func(ev *postroom.Event) { ev.NotBefore = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, "NotBefore", "years 1 to 9999"},
		{"a content type that says the body is a whole event", func(ev *postroom.Event) { ev.ContentType = "application/cloudevents+json; x=" + secret }, "ContentType", "whole event"},
		{"and that in any case", func(ev *postroom.Event) { ev.ContentType = "Application/CloudEvents+JSON" }, "ContentType", "whole event"},
		{"headers that differ in case only", func(ev *postroom.Event) {
			ev.Headers = map[string]string{"X-Tenant": secret, "x-tenant": secret}
		}, "Headers[x-tenant]", "differs from another header in case only"},
	}

	// Texts that are sent as values of headers.
	texts := map[string]func(*postroom.Event, string){
		"ID":                func(ev *postroom.Event, s string) { ev.ID = s },
		"Source":            func(ev *postroom.Event, s string) { ev.Source = s },
		"Key":               func(ev *postroom.Event, s string) { ev.Key = s },
		"ContentType":       func(ev *postroom.Event, s string) { ev.ContentType = s },
		"CorrelationID":     func(ev *postroom.Event, s string) { ev.CorrelationID = s },
		"CausationID":       func(ev *postroom.Event, s string) { ev.CausationID = s },
		"TraceParent":       func(ev *postroom.Event, s string) { ev.TraceParent = s },
		"TraceState":        func(ev *postroom.Event, s string) { ev.TraceState = s },
		"Headers[x-tenant]": func(ev *postroom.Event, s string) { ev.Headers = map[string]string{"x-tenant": s} },
	}
	for _, field := range slices.Sorted(maps.Keys(texts)) {
		for _, bad := range []struct{ name, value, problem string }{
			{"not UTF-8", secret + "\xff", "is not valid UTF-8"},
			{"a NUL", secret + "\x00a", "control character"},
			{"a line break", secret + "\r\nNats-Rollup: all", "control character"},
			{"a tab", secret + "\ta", "control character"},
			{"a delete", secret + "\x7f", "control character"},
			{"a control character of the upper half", secret + "\u0085a", "control character"},
			{"a space at the beginning", " " + secret, "begins or ends with white space"},
			{"a space at the end", secret + " ", "begins or ends with white space"},
			{"a space of another kind at the end", secret + "\u00a0", "begins or ends with white space"},
			{"nothing but a space", " ", "begins or ends with white space"},
		} {
			tests = append(tests, row{
				field + " with " + bad.name,
				func(ev *postroom.Event) { texts[field](ev, bad.value) }, field, bad.problem,
			})
		}
	}
	for _, field := range []string{"ID", "Source"} {
		for _, bad := range []struct{ name, value string }{
			{"a '#'", secret + "#1"},
			{"a space within", secret + " 1"},
			{"a space of another kind within", secret + "\u2003" + "1"},
		} {
			tests = append(tests, row{
				field + " with " + bad.name,
				func(ev *postroom.Event) { texts[field](ev, bad.value) }, field, "has a '#' or white space in it",
			})
		}
	}

	// Types and subjects.
	subjects := map[string]func(*postroom.Event, string){
		"Type":    func(ev *postroom.Event, s string) { ev.Type = s },
		"Subject": func(ev *postroom.Event, s string) { ev.Subject = s },
	}
	for _, field := range slices.Sorted(maps.Keys(subjects)) {
		for _, bad := range []struct{ name, value, problem string }{
			{"a dot at the beginning", "." + secret, "empty token"},
			{"a dot at the end", secret + ".", "empty token"},
			{"two dots", secret + "..a", "empty token"},
			{"nothing but a dot", ".", "empty token"},
			{"a space", secret + " a", "a character other than"},
			{"the wildcard of one token", secret + ".*", "a character other than"},
			{"the wildcard of many tokens", secret + ".>", "a character other than"},
			{"the sign of the broker's own subjects", "$JS.API." + secret, "a character other than"},
			{"a slash", secret + "/a", "a character other than"},
			{"a letter of another alphabet", secret + ".größe", "a character other than"},
			{"a line break", secret + "\n", "a character other than"},
			{"a NUL", secret + "\x00", "a character other than"},
			{"bytes that are not UTF-8", secret + "\xff", "a character other than"},
		} {
			tests = append(tests, row{
				field + " with " + bad.name,
				func(ev *postroom.Event) { subjects[field](ev, bad.value) }, field, bad.problem,
			})
		}
	}

	// Names of headers.
	for _, name := range []string{"", "x tenant", "x:tenant", "x.tenant", "größe", "x\r\nNats-Rollup"} {
		shown := strings.NewReplacer("\r", "?", "\n", "?").Replace(name) // a line break would forge a log line
		tests = append(tests, row{
			fmt.Sprintf("a header named %q", name), header(name, secret), "Headers[" + shown + "]", "is not a header name",
		})
	}
	for _, name := range []string{
		"Nats-Msg-Id", "nats-rollup", "NATS-Expected-Stream", "Nats-", "ce-id", "CE-Source", "ce-", "cE-anything",
		"Postroom-Logged-At", "postroom-correlation-id", "postroom-x", "traceparent", "TraceParent", "tracestate", "TRACESTATE",
		"Content-Type", "content-type", "Status", "description",
	} {
		tests = append(tests, row{
			"a header named " + name, header(name, secret), "Headers[" + name + "]", "is reserved",
		})
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev := postroom.Event{Type: "order.placed"}
			tt.change(&ev)
			err := ev.Validate()
			faults := wantFaults(t, err, tt.field)
			if got := faults[0].Problem; !strings.Contains(got, tt.problem) {
				t.Errorf("Problem = %q, want %q in it", got, tt.problem)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error holds the value: %v", err)
			}
		})
	}
}

func TestValidateNamesEveryReservedHeader(t *testing.T) {
	err := postroom.Event{Type: "order.placed", Headers: map[string]string{"ce-id": ""}}.Validate()
	problem := strings.ToLower(wantFaults(t, err, "Headers[ce-id]")[0].Problem)
	for _, name := range []string{"nats-", "ce-", "postroom-", "traceparent", "tracestate", "content-type", "status", "description"} {
		if !strings.Contains(problem, name) {
			t.Errorf("%q is reserved, and the problem does not say so: %s", name, problem)
		}
	}
}

// The test has the limits as numbers, because the checks of the database have the same numbers. An
// event that is not published may have a larger body. All other limits apply to it.
func TestValidateAccepted(t *testing.T) {
	ev := postroom.NewEvent("order.placed", nil)
	ev.Source, ev.Data = "/shop", make([]byte, postroom.MaxAccepted)
	if err := ev.ValidateAccepted(); err != nil {
		t.Errorf("%d bytes: %v", len(ev.Data), err)
	}
	ev.Data = append(ev.Data, 'x')
	var fault *postroom.FieldError
	if err := ev.ValidateAccepted(); !errors.As(err, &fault) || fault.Field != "Data" || len(ev.Data) != postroom.MaxAccepted+1 {
		t.Errorf("%d bytes: %v, want a fault of Data", len(ev.Data), err)
	}
	ev.Type = "no type"
	if err := ev.ValidateAccepted(); err == nil || !strings.Contains(err.Error(), "Type") || !strings.Contains(err.Error(), "Data") {
		t.Errorf("of a wrong type, too: %v", err)
	}
}

func TestValidateLimits(t *testing.T) {
	headers := func(n int) map[string]string {
		m := make(map[string]string, n)
		for i := range n {
			m[fmt.Sprintf("x-%d", i)] = ""
		}
		return m
	}
	tests := []struct {
		name  string
		limit int
		set   func(ev *postroom.Event, n int)
		field string
	}{
		{"ID", 255, func(ev *postroom.Event, n int) { ev.ID = strings.Repeat("a", n) }, "ID"},
		{"ID counts bytes, not letters", 255, func(ev *postroom.Event, n int) { ev.ID = "ü" + strings.Repeat("a", n-2) }, "ID"},
		{"Source", 255, func(ev *postroom.Event, n int) { ev.Source = strings.Repeat("a", n) }, "Source"},
		{"Type", 255, func(ev *postroom.Event, n int) { ev.Type = strings.Repeat("a", n) }, "Type"},
		{"Type counts its dots", 255, func(ev *postroom.Event, n int) {
			ev.Type = strings.Repeat("a.", n/2-1) + strings.Repeat("a", n-2*(n/2-1))
		}, "Type"},
		{"Subject", 255, func(ev *postroom.Event, n int) { ev.Subject = strings.Repeat("a", n) }, "Subject"},
		{"Key", 255, func(ev *postroom.Event, n int) { ev.Key = strings.Repeat("a", n) }, "Key"},
		{"ContentType", 255, func(ev *postroom.Event, n int) { ev.ContentType = strings.Repeat("a", n) }, "ContentType"},
		{"CorrelationID", 255, func(ev *postroom.Event, n int) { ev.CorrelationID = strings.Repeat("a", n) }, "CorrelationID"},
		{"CausationID", 255, func(ev *postroom.Event, n int) { ev.CausationID = strings.Repeat("a", n) }, "CausationID"},
		{"Data", 983_040, func(ev *postroom.Event, n int) { ev.Data = make([]byte, n) }, "Data"},
		{"number of headers", 64, func(ev *postroom.Event, n int) { ev.Headers = headers(n) }, "Headers"},
		{"bytes of one header, with its name", 32_768, func(ev *postroom.Event, n int) {
			ev.Headers = map[string]string{"x-a": strings.Repeat("a", n-len("x-a"))}
		}, "Headers"},
		{"bytes of all headers together", 32_768, func(ev *postroom.Event, n int) {
			half := n / 2
			ev.Headers = map[string]string{"x-a": strings.Repeat("a", half-3), "x-b": strings.Repeat("b", n-half-3)}
		}, "Headers"},
		{"name of a header", 128, func(ev *postroom.Event, n int) {
			ev.Headers = map[string]string{strings.Repeat("a", n): ""}
		}, "Headers[" + strings.Repeat("a", 40) + "…]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev := postroom.Event{Type: "order.placed"}
			tt.set(&ev, tt.limit)
			if err := ev.Validate(); err != nil {
				t.Errorf("at %d, Validate = %v, want nil", tt.limit, err)
			}

			tt.set(&ev, tt.limit+1)
			faults := wantFaults(t, ev.Validate(), tt.field)
			if got, want := faults[0].Problem, fmt.Sprint(tt.limit); !strings.Contains(got, want) {
				t.Errorf("Problem = %q, want the limit %s in it", got, want)
			}
		})
	}
}

func TestValidateReportsEveryFaultAtOnce(t *testing.T) {
	ev := postroom.NewEvent("", make(chan int))
	ev.ID = "a#" + secret
	ev.Source = "a " + secret
	ev.Subject = secret + ".>"
	ev.Key = " " + secret
	ev.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	ev.ContentType = secret + "\n"
	ev.Data = make([]byte, postroom.MaxData+1)
	ev.CorrelationID = secret + "\x00"
	ev.CausationID = secret + "\xff"
	ev.Headers = map[string]string{
		"ce-id":   secret,
		"no name": secret + "\n",
		"x-big":   strings.Repeat("a", postroom.MaxHeaderBytes+1),
		"x-lines": secret + "\n",
	}
	for i := range postroom.MaxHeaders {
		ev.Headers[fmt.Sprint("x-", i)] = ""
	}

	err := ev.Validate()
	wantFaults(t, err, "CausationID", "ContentType", "CorrelationID", "Data", "Data", "Headers", "Headers",
		"Headers[ce-id]", "Headers[no name]", "Headers[no name]", "Headers[x-big]", "Headers[x-lines]",
		"ID", "Key", "Source", "Subject", "Time", "Type")
	if strings.Contains(err.Error(), secret) {
		t.Errorf("the error holds a value: %v", err)
	}
	if err.Error() != ev.Validate().Error() {
		t.Error("the same faults read differently the second time")
	}
}

// A relay logs the error of an event that SQL wrote, and such an event may have thousands of headers.
func TestTheErrorOfManyHeadersIsShort(t *testing.T) {
	ev := postroom.Event{Type: "order.placed", Headers: make(map[string]string)}
	for i := range 20_000 {
		ev.Headers[fmt.Sprint("ce-", i)] = ""
	}
	err := ev.Validate()
	if n := len(err.Error()); n > 64<<10 {
		t.Errorf("the error has %d bytes", n)
	}
	if !strings.Contains(err.Error(), "Headers are 20000, at most 64 are allowed") {
		t.Error("the error does not say how many headers there are")
	}
}

func TestValidateDoesNotChangeTheEvent(t *testing.T) {
	ev := postroom.Event{Type: "order.placed", Data: []byte("{}"), Headers: map[string]string{"x-tenant": "a"}}
	if err := ev.Validate(); err != nil {
		t.Fatalf("Validate = %v, want nil", err)
	}
	if ev.ID != "" || ev.Subject != "" || ev.ContentType != "" || !ev.Time.IsZero() || string(ev.Data) != "{}" || len(ev.Headers) != 1 {
		t.Errorf("after Validate the event is %+v", ev)
	}
}

func TestValidateClipsTheNameOfAHeader(t *testing.T) {
	tests := []struct{ name, header, want string }{
		{"that is long", strings.Repeat("x ", 5000), "Headers[" + strings.Repeat("x ", 20) + "…]"},
		{"in the middle of a letter", strings.Repeat("a", 39) + "ü", "Headers[" + strings.Repeat("a", 39) + "?…]"},
		{"that is not UTF-8", "x\xff", "Headers[x?]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantFaults(t, postroom.Event{Type: "a", Headers: map[string]string{tt.header: ""}}.Validate(), tt.want)
		})
	}
}

// wantFaults checks that err consists of exactly one *FieldError for each of fields, and returns
// them in the order of fields. fields must be sorted.
func wantFaults(t *testing.T, err error, fields ...string) []*postroom.FieldError {
	t.Helper()
	if !errors.Is(err, postroom.ErrInvalidEvent) {
		t.Fatalf("err = %v, want ErrInvalidEvent", err)
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("err is a %T, want joined errors", err)
	}
	var faults []*postroom.FieldError
	for _, part := range joined.Unwrap() {
		var fault *postroom.FieldError
		if !errors.As(part, &fault) {
			t.Fatalf("%v is a %T, want a *FieldError", part, part)
		}
		if !strings.Contains(err.Error(), fault.Field+" "+fault.Problem) {
			t.Errorf("%v does not say %q of %q", err, fault.Problem, fault.Field)
		}
		faults = append(faults, fault)
	}
	slices.SortStableFunc(faults, func(a, b *postroom.FieldError) int { return strings.Compare(a.Field, b.Field) })
	var got []string
	for _, fault := range faults {
		got = append(got, fault.Field)
	}
	if !slices.Equal(got, fields) {
		t.Fatalf("faults of %q, want of %q:\n%v", got, fields, err)
	}
	return faults
}
