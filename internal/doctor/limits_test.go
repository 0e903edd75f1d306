package doctor_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/doctor"
	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/natsjs"
)

func jetStream(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js := devtest.JetStream(t, nc)
	return js
}

// wrong returns the faults and warnings of a check, with S for the name of the stream.
func wrong(report doctor.Report, check, stream string) (found []string) {
	for _, f := range of(report, check) {
		if f.Severity == doctor.Fault || f.Severity == doctor.Warning {
			found = append(found, strings.ReplaceAll(string(f.Severity)+" "+f.Subject+": "+f.Text+"; "+f.Remedy, stream, "S"))
		}
	}
	return found
}

// wantWrong compares the findings with texts that they must contain.
func wantWrong(t *testing.T, found []string, want [][]string) {
	t.Helper()
	if len(found) != len(want) {
		t.Errorf("found %q, want %d", found, len(want))
		return
	}
	for i, parts := range want {
		for _, part := range parts {
			if !strings.Contains(found[i], part) {
				t.Errorf("found %q, want %q in it", found[i], part)
			}
		}
	}
}

// subscribed adds the row of a handler that reads the subjects under the stream's name. Unless the
// handler is ordered, it also creates its durable consumer.
func subscribed(t *testing.T, pool *pgxpool.Pool, js jetstream.JetStream, stream string, ordered bool, cfg jetstream.ConsumerConfig) {
	t.Helper()
	exec(t, pool, "INSERT INTO postroom.subscription (handler, stream, stream_created, subjects, ordered) VALUES ('h', $1, now(), ARRAY[$2], $3)",
		stream, stream+".>", ordered)
	if ordered {
		return
	}
	var instance string
	if err := pool.QueryRow(t.Context(), "SELECT id::text FROM postroom.instance").Scan(&instance); err != nil {
		t.Fatal(err)
	}
	cfg.Durable, cfg.Metadata = identity.Consumer(instance, "h"), map[string]string{identity.InstanceKey: instance, identity.HandlerKey: "h"}
	cfg.AckPolicy, cfg.MaxDeliver, cfg.FilterSubject = jetstream.AckExplicitPolicy, -1, stream+".>"
	if _, err := js.CreateConsumer(t.Context(), stream, cfg); err != nil {
		t.Fatal(err)
	}
}

// The test has limits of a stream for the consumers of a handler, and faults of the consumer
// itself.
func TestLimitsOfConsumers(t *testing.T) {
	t.Parallel()
	removed := func(d time.Duration) jetstream.StreamConsumerLimits {
		return jetstream.StreamConsumerLimits{InactiveThreshold: d}
	}
	tomorrow, yesterday := time.Now().Add(24*time.Hour), time.Now().Add(-24*time.Hour)
	tests := []struct {
		name     string
		stream   jetstream.StreamConfig
		ordered  bool
		consumer jetstream.ConsumerConfig
		want     [][]string
		note     string
	}{
		{name: "no limits", consumer: jetstream.ConsumerConfig{MaxAckPending: -1}},
		{
			name: "a reader's consumer does not last from one request to the next", stream: jetstream.StreamConfig{ConsumerLimits: removed(500 * time.Millisecond)}, ordered: true,
			want: [][]string{{"fault h: its stream S does not suit the handler: it removes a consumer that asks for nothing for 500ms", "nats stream edit S"}},
		},
		{
			name: "a reader's consumer lasts", stream: jetstream.StreamConfig{ConsumerLimits: removed(5 * time.Second)}, ordered: true,
		},
		{
			name: "events leave with the consumer", stream: jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy, ConsumerLimits: removed(time.Minute)},
			consumer: jetstream.ConsumerConfig{MaxAckPending: -1},
			want:     [][]string{{"fault h: its stream S does not suit the handler: it removes the handler's consumer if no process of the handler runs for 1m0s", "nats stream edit S"}},
		},
		{
			name: "the consumer is made again", stream: jetstream.StreamConfig{ConsumerLimits: removed(time.Minute)}, consumer: jetstream.ConsumerConfig{MaxAckPending: -1},
			want: [][]string{{"warning h: if no process of the handler runs for 1m0s, its stream S removes the handler's consumer", "set consumer_limits.inactive_threshold of the stream S to 0"}},
		},
		{
			name: "events are stored elsewhere", stream: jetstream.StreamConfig{SubjectTransform: &jetstream.SubjectTransformConfig{Source: ">", Destination: "elsewhere.>"}},
			consumer: jetstream.ConsumerConfig{MaxAckPending: -1},
			want:     [][]string{{"fault h: its stream S does not suit the handler: it stores messages of S.> under elsewhere.>", "nats stream edit S"}},
		},
		{
			name: "few may wait for their answer", consumer: jetstream.ConsumerConfig{MaxAckPending: 7},
			want: [][]string{{"fault h: its consumer", "on the stream S loses events or keeps them back: max_ack_pending is 7, want -1", "restart a process of the handler"}},
		},
		{
			name: "an operator has paused the consumer", consumer: jetstream.ConsumerConfig{MaxAckPending: -1, PauseUntil: &tomorrow},
			note: "an operator has paused its consumer ", // no fault, as for postroom status
		},
		{
			name: "a pause of the consumer has ended", consumer: jetstream.ConsumerConfig{MaxAckPending: -1, PauseUntil: &yesterday},
		},
		{
			name: "the consumer is removed, and the stream does not ask for it", consumer: jetstream.ConsumerConfig{MaxAckPending: -1, InactiveThreshold: time.Minute},
			want: [][]string{{"fault h: its consumer", "it is removed if no process reads for 1m0s (inactive_threshold)"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool, nc, name := devtest.Pool(t), devtest.NATS(t), nats.NewInbox()[len("_INBOX."):]
			js := jetStream(t, nc)
			if tt.consumer.PauseUntil != nil {
				devtest.NeedsNATS(t, nc, 11)
			}
			tt.stream.Name, tt.stream.Subjects = name, []string{name + ".>"}
			if _, err := js.CreateStream(t.Context(), tt.stream); err != nil {
				t.Fatal(err)
			}
			subscribed(t, pool, js, name, tt.ordered, tt.consumer)
			report := examine(t, pool, nc, doctor.Config{})
			wantWrong(t, wrong(report, "consumers", name), tt.want)
			if notes := (doctor.Report{Findings: of(report, "consumers")}).Of(doctor.Note); tt.note != "" && (len(notes) != 1 || !strings.HasPrefix(notes[0].Text, tt.note)) {
				t.Errorf("notes: %+v, want %q", notes, tt.note)
			}
		})
	}
}

// The test has a stream that is nearly full, and one that is not.
func TestLimitsOfStreams(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name          string
		stream        jetstream.StreamConfig
		bytes, events int // the bytes of each event, and the number of events
		want          [][]string
	}{
		{"half of the messages", jetstream.StreamConfig{MaxMsgs: 20}, 1, 10, nil},
		{"nearly all messages", jetstream.StreamConfig{MaxMsgs: 20}, 1, 19, [][]string{{"warning S: it has 19 of 20 messages: when it is full, it refuses events", "raise its limit"}}},
		{"half of the bytes", jetstream.StreamConfig{MaxBytes: 20_000}, 10_000, 1, nil},
		{"nearly all bytes", jetstream.StreamConfig{MaxBytes: 20_000}, 19_000, 1, [][]string{{"warning S: 19", "of 20000 bytes are used: when it is full, it refuses events", "raise its limit"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool, nc, name := devtest.Pool(t), devtest.NATS(t), nats.NewInbox()[len("_INBOX."):]
			js := jetStream(t, nc)
			tt.stream.Name, tt.stream.Subjects = name, []string{name + ".>"}
			tt.stream.Discard, tt.stream.Duplicates = jetstream.DiscardNew, 2*time.Minute
			if err := natsjs.EnsureStream(t.Context(), nc, tt.stream); err != nil {
				t.Fatal(err)
			}
			for range tt.events {
				if _, err := js.Publish(t.Context(), name+".placed", make([]byte, tt.bytes)); err != nil {
					t.Fatal(err)
				}
			}
			wantWrong(t, wrong(examine(t, pool, nc, doctor.Config{Streams: []string{name}}), "streams", name), tt.want)
		})
	}
}

// An account has nearly reached each of the limits that the broker counts.
func TestLimitsOfAccounts(t *testing.T) {
	t.Parallel()
	server, err := devstack.StartNATS(t.Context(), devstack.NATSConfig{Options: `accounts {
		file { jetstream: {max_file: 20000}, users: [{user: file, password: x}] }
		memory { jetstream: {max_mem: 20000}, users: [{user: memory, password: x}] }
		streams { jetstream: {max_streams: 1}, users: [{user: streams, password: x}] }
		consumers { jetstream: {max_consumers: 1}, users: [{user: consumers, password: x}] }
		ample { jetstream: {max_file: 200000, max_mem: 200000, max_streams: 2, max_consumers: 2}, users: [{user: ample, password: x}] } }`})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	pool := devtest.Pool(t)
	for _, tt := range []struct {
		account string
		storage jetstream.StorageType
		says    []string
	}{
		{"file", jetstream.FileStorage, []string{"of 20000 bytes of storage are used"}},
		{"memory", jetstream.MemoryStorage, []string{"of 20000 bytes of memory are used"}},
		{"streams", jetstream.FileStorage, []string{"1 of 1 streams are used"}},
		{"consumers", jetstream.FileStorage, []string{"1 of 1 consumers are used"}},
		{"ample", jetstream.FileStorage, nil},
	} {
		t.Run(tt.account, func(t *testing.T) {
			nc, err := nats.Connect(server.URL(), append(natsjs.ConnectOptions(), nats.UserInfo(tt.account, "x"))...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			js := jetStream(t, nc)
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "A", Subjects: []string{"a"}, Storage: tt.storage}); err != nil {
				t.Fatal(err)
			}
			if _, err := js.CreateConsumer(t.Context(), "A", jetstream.ConsumerConfig{Durable: "c"}); err != nil {
				t.Fatal(err)
			}
			if _, err := js.Publish(t.Context(), "a", make([]byte, 19_000)); err != nil {
				t.Fatal(err)
			}
			found := wrong(examine(t, pool, nc, doctor.Config{}), "broker", "A")
			if len(tt.says) == 0 {
				wantWrong(t, found, nil)
				return
			}
			wantWrong(t, found, [][]string{slices.Concat([]string{"warning account: ", "raise the limit of the account"}, tt.says)})
		})
	}
}
