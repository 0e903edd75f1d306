package doctor_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/doctor"
	"github.com/postroom/postroom/natsjs"
)

// If a handler asks for a type that no producer writes, there is a warning. If no handler reads a
// type, there is only a note, because that is no fault.
func TestTypes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                   string
		asks, stream, log, and []string // and: what another handler asks for
		want                   doctor.Severity
		says                   string
		about                  string
	}{
		{name: "an empty stream", asks: []string{"plcaed"}, want: doctor.OK},
		{name: "all is well", asks: []string{"placed", "refunded"}, stream: []string{"placed"}, want: doctor.OK},
		{
			name: "a type that no handler takes", asks: []string{"placed"}, stream: []string{"placed", "refunded"}, want: doctor.Note, about: "S",
			says: "no handler of this database reads S.refunded; handlers of other databases may",
		},
		{
			name: "a slip", asks: []string{"plcaed"}, and: []string{"placed"}, stream: []string{"placed"}, want: doctor.Warning, about: "h",
			says: "no event of type S.plcaed is in stream S, or among the newest in this database; did you mean S.placed?",
		},
		{
			name: "a slip that the log shows", asks: []string{"plcaed"}, and: []string{"placed"}, log: []string{"placed"}, want: doctor.Warning, about: "h",
			says: "no event of type S.plcaed is among the newest in this database; did you mean S.placed?",
		},
		{
			name: "none of its types, as before what writes them is rolled out", asks: []string{"shipped"}, and: []string{"placed"}, stream: []string{"placed"}, want: doctor.Note, about: "h",
			says: "no event of type S.shipped is in stream S, or among the newest in this database yet, but events of other types are; that is fine ",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool, nc, name := devtest.Pool(t), devtest.NATS(t), nats.NewInbox()[len("_INBOX."):]
			if err := natsjs.EnsureStream(t.Context(), nc, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}); err != nil {
				t.Fatal(err)
			}
			full := func(kinds []string) (types []string) {
				for _, kind := range kinds {
					types = append(types, name+"."+kind)
				}
				return types
			}
			for handler, kinds := range map[string][]string{"h": tt.asks, "other": tt.and} {
				if kinds != nil {
					exec(t, pool, "INSERT INTO postroom.subscription (handler, stream, stream_created, types, subjects) VALUES ($1, $2, now(), $3, $3)", handler, name, full(kinds))
				}
			}
			js := devtest.JetStream(t, nc)
			for _, subject := range full(tt.stream) {
				if _, err := js.Publish(t.Context(), subject, nil); err != nil {
					t.Fatal(err)
				}
			}
			for _, subject := range full(tt.log) {
				exec(t, pool, `INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data)
					VALUES (decode(repeat('00', 16), 'hex'), '/shop', '1', $1::text, $1::text, 'x')`, subject)
			}
			report := examine(t, pool, nc, doctor.Config{})
			for i := range report.Findings {
				report.Findings[i].Text = strings.ReplaceAll(report.Findings[i].Text, name, "S")
			}
			wantOne(t, report, "types", tt.want, tt.says)
			if found := of(report, "types"); len(found) == 1 && (strings.ReplaceAll(found[0].Subject, name, "S") != tt.about || (tt.want == doctor.Warning) != (found[0].Remedy != "")) {
				t.Errorf("found %+v, want it about %q", found[0], tt.about)
			}
		})
	}
}
