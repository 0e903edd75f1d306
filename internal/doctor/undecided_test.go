package doctor_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/doctor"
	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/natsjs"
)

// A person read messages of a handler's consumer and acknowledged them. The handler has decided only
// the first one. The others are named. Those that need no inbox row are not: messages of a type that
// no process asked for, messages from before their subject was added, messages whose rows may have
// expired, and messages whose keys a function makes. A stream without limits retention has removed
// them.
func TestAcknowledgedMessagesThatAreNotDecided(t *testing.T) {
	t.Parallel()
	const decided = "INSERT INTO postroom.inbox (handler, dedupe_key, digest) VALUES ('h', '/shop e1', decode('00112233445566778899aabbccddeeff', 'hex'))"
	for name, tt := range map[string]struct {
		sql       string
		retention jetstream.RetentionPolicy
		want      []string
	}{
		"not decided":               {sql: decided, want: []string{"e2", "e3"}},
		"no row yet":                {sql: "SELECT", want: []string{"e1", "e2", "e3"}},
		"recorded floor":            {sql: decided + "; UPDATE postroom.subscription SET floor = 2", want: []string{"e3"}},
		"before a new subject":      {sql: decided + "; UPDATE postroom.subscription SET skipped_through = 2", want: []string{"e3"}},
		"of another type":           {sql: decided + "; UPDATE postroom.subscription SET types = '{other}'"},
		"rows that may be gone":     {sql: decided + "; INSERT INTO postroom.dedupe_window VALUES ('h', '1 day', now())"},
		"keys of a function":        {sql: decided + "; UPDATE postroom.subscription SET own_keys = true"},
		"of an ordered handler":     {sql: "UPDATE postroom.subscription SET ordered = true"},
		"that the stream gave away": {sql: decided, retention: jetstream.WorkQueuePolicy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, nc := devtest.Pool(t), devtest.NATS(t)
			stream := nats.NewInbox()[len("_INBOX."):]
			kind := stream + ".placed"
			err := natsjs.EnsureStream(t.Context(), nc, jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"}, Retention: tt.retention})
			if err != nil {
				t.Fatal(err)
			}
			js := devtest.JetStream(t, nc)
			s, err := js.Stream(t.Context(), stream)
			if err != nil {
				t.Fatal(err)
			}
			var instance string
			if err := pool.QueryRow(t.Context(), "SELECT id::text FROM postroom.instance").Scan(&instance); err != nil {
				t.Fatal(err)
			}
			exec(t, pool, "INSERT INTO postroom.subscription (handler, stream, stream_created, subjects) VALUES ('h', $1, $2, ARRAY[$3])",
				stream, s.CachedInfo().Created.Truncate(time.Microsecond), kind)
			durable, err := s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: identity.Consumer(instance, "h"), AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: kind})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				ev := postroom.Event{ID: fmt.Sprint("e", i+1), Source: "/shop", Type: kind, Time: time.Now(), LoggedAt: time.Now(), ContentType: "application/json"}
				if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: kind, Header: wire.Encode(ev), Data: []byte("{}")}); err != nil {
					t.Fatal(err)
				}
			}
			batch, err := durable.Fetch(3)
			if err != nil {
				t.Fatal(err)
			}
			for msg := range batch.Messages() {
				if err := msg.DoubleAck(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			exec(t, pool, tt.sql)
			losses, err := doctor.New(pool, nc, doctor.Config{}).Losses(t.Context())
			if err != nil || len(losses.Handlers) != 1 {
				t.Fatalf("%+v, %v", losses, err)
			}
			at, want := losses.Handlers[0], doctor.Intact
			if len(tt.want) > 0 {
				want = doctor.Undecided
			}
			var named []string
			for _, m := range at.Undecided {
				named = append(named, m.EventID)
			}
			if at.Verdict != want || !slices.Equal(named, tt.want) || losses.Any() != (want == doctor.Undecided) {
				t.Errorf("the verdict is %s (%s) and names %v, want %s and %v", at.Verdict, at.Text, named, want, tt.want)
			}
			if len(tt.want) > 0 && (at.Undecided[0].Source != "/shop" || at.Undecided[0].Subject != kind || at.Undecided[0].Seq == 0) {
				t.Errorf("the first message is %+v", at.Undecided[0])
			}
		})
	}
}
