package natsjs_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay/broker"
)

// looseStream makes a stream from which messages can be removed.
func looseStream(t *testing.T, nc *nats.Conn, cfg jetstream.StreamConfig) jetstream.Stream {
	t.Helper()
	js := devtest.JetStream(t, nc)
	if cfg.AllowAtomicPublish {
		devtest.NeedsNATS(t, nc, 12)
		cfg.Subjects = append(cfg.Subjects, natsjs.LeaseSubjects(cfg.Name))
	}
	s, err := js.CreateStream(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// storedIDs returns the ids of the events that a stream has, in its order.
func storedIDs(t *testing.T, s jetstream.Stream) (ids []string) {
	t.Helper()
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		if msg, err := s.GetMsg(t.Context(), seq); err == nil && msg.Header.Get("ce-id") != "" {
			ids = append(ids, msg.Header.Get("ce-id"))
		}
	}
	return ids
}

// removing deletes messages of a stream.
func removing(seqs ...uint64) func(t *testing.T, s jetstream.Stream) {
	return func(t *testing.T, s jetstream.Stream) {
		t.Helper()
		for _, seq := range seqs {
			if err := s.DeleteMsg(t.Context(), seq); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// If a broker drops an event as a duplicate of a message that it has lost, the event is stored
// in the end: under another message id, and once.
func TestDuplicateOfALostMessageIsStored(t *testing.T) {
	t.Parallel()
	purge := func(t *testing.T, s jetstream.Stream) {
		t.Helper()
		if err := s.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i, tt := range []struct {
		name      string
		cfg       jetstream.StreamConfig
		lose      func(t *testing.T, s jetstream.Stream)
		want      []string // that the stream has in the end
		duplicate []int64  // events that are reported as duplicates
	}{
		{"none is lost", jetstream.StreamConfig{}, removing(), []string{"e-1", "e-2", "e-3"}, []int64{1, 2, 3}},
		{"the newest", jetstream.StreamConfig{}, removing(3), []string{"e-1", "e-2", "e-3"}, []int64{1, 2}},
		{"one in the midst", jetstream.StreamConfig{}, removing(2), []string{"e-1", "e-3", "e-2"}, []int64{1, 3}},
		{"all", jetstream.StreamConfig{}, removing(1, 2, 3), []string{"e-1", "e-2", "e-3"}, nil},
		{"all, by a purge", jetstream.StreamConfig{}, purge, []string{"e-1", "e-2", "e-3"}, nil},
		{"they were consumed", jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy}, removing(1, 2, 3), nil, []int64{1, 2, 3}},
		{"a limit took them", jetstream.StreamConfig{MaxMsgs: 1, Discard: jetstream.DiscardOld}, removing(), []string{"e-3"}, []int64{1, 2, 3}},
		{"a limit of their subject took them", jetstream.StreamConfig{MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew}, removing(), []string{"e-3"}, []int64{1, 2, 3}},
	} {
		for _, atomic := range []bool{false, true} {
			if atomic && tt.cfg.Retention != jetstream.LimitsPolicy || atomic && tt.cfg.MaxMsgs+tt.cfg.MaxMsgsPerSubject > 0 {
				continue // such a stream takes no atomic batches
			}
			t.Run(fmt.Sprint(tt.name, ", atomic: ", atomic), func(t *testing.T) {
				t.Parallel()
				nc := devtest.NATS(t)
				subject := fmt.Sprintf("dup%d%t", i, atomic)
				cfg := tt.cfg
				cfg.Name, cfg.Subjects, cfg.AllowAtomicPublish = "DUP"+subject, []string{subject + ".>"}, atomic
				s := looseStream(t, nc, cfg)
				var p *publisher
				if atomic {
					p = &begin(t, connect(t, nc.ConnectedUrl()), (&leaseTable{}).claim()).publisher
				} else {
					p = publish(t, connect(t, nc.ConnectedUrl()))
				}
				send := func() (duplicates []int64) {
					for seq := range int64(3) { // one after the other, so that they are stored in this order
						p.send(event(seq+1, subject+".a", fmt.Sprintf("e-%d", seq+1)))
						o := p.next()
						if o.class != broker.Stored {
							t.Fatalf("outcome %+v, want stored", o)
						}
						if o.duplicate {
							duplicates = append(duplicates, o.seq)
						}
					}
					return duplicates
				}
				send()
				lose := tt.lose
				if atomic { // the message of the lease is the first
					lose = map[string]func(*testing.T, jetstream.Stream){
						"none is lost": removing(), "the newest": removing(4 + 1), "one in the midst": removing(3 + 1), "all": removing(3, 4, 5),
					}[tt.name]
					if lose == nil {
						return // a purge removes the lease message as well
					}
				}
				lose(t, s)
				if got := send(); !slices.Equal(got, tt.duplicate) {
					t.Errorf("reported as duplicates: %v, want %v", got, tt.duplicate)
				}
				if got := storedIDs(t, s); !slices.Equal(got, tt.want) {
					t.Errorf("the stream has %v, want %v", got, tt.want)
				}
				send() // the copies are duplicates themselves now
				if got := storedIDs(t, s); !slices.Equal(got, tt.want) {
					t.Errorf("the stream has %v after a third time, want %v", got, tt.want)
				}
			})
		}
	}
}

// The same for events that are acknowledged together, and that were sent in atomic batches.
func TestDuplicatesOfManyLostMessagesAreStored(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	s := looseStream(t, nc, jetstream.StreamConfig{Name: "DUPMANY", Subjects: []string{"dupmany.>"}})
	events := several("dupmany.a", 3*natsjs.MaxGroup+5)
	publishTogether(t, connect(t, nc.ConnectedUrl()), events)
	removing(2, 40, 41, uint64(len(events)))(t, s)
	told, again := publishAgain(t, connect(t, nc.ConnectedUrl()), events)
	wantStored(t, s, events, told)
	duplicates := 0
	for _, o := range told {
		if o.Duplicate {
			duplicates++
		}
	}
	if duplicates != len(events)-4 && len(again) == 0 { // an event that was sent again is a duplicate in any case
		t.Errorf("%d events are reported as duplicates, want all but 4 of %d", duplicates, len(events))
	}
}

// If the user may not read messages, the publisher cannot find out whether the first message
// is still there. Then the event may be stored twice, but is not lost.
func TestDuplicateThatCannotBeLookedUpIsNotLost(t *testing.T) {
	t.Parallel()
	server := startNATS(t, devstack.NATSConfig{Options: denying("$JS.API.STREAM.MSG.GET.>")})
	s := looseStream(t, connect(t, server.URL(), nats.UserInfo("op", "op")), jetstream.StreamConfig{Name: "BLIND", Subjects: []string{"blind.>"}})
	p := publish(t, connect(t, server.URL(), nats.UserInfo("relay", "relay")))
	messages := asMessages(event(1, "blind.a", "e-1"))
	send := func() outcome {
		for {
			p.batches <- messages
			if o := p.next(); o.class != broker.Unknown {
				return o
			}
		}
	}
	if o := send(); o.class != broker.Stored || o.duplicate {
		t.Fatalf("outcome %+v, want stored", o)
	}
	removing(1)(t, s)
	if o := send(); o.class != broker.Stored || o.duplicate {
		t.Errorf("outcome %+v of the repetition, want stored", o)
	}
	if got := storedIDs(t, s); len(got) != 1 {
		t.Errorf("the stream has %v, want the event", got)
	}
}

// Two logs with the same source publish to one stream. The broker drops the second event with an id as
// a duplicate. If its content differs, the event is not stored, and the publisher says so.
func TestDuplicateWithOtherContentIsRefused(t *testing.T) {
	t.Parallel()
	for _, atomic := range []bool{false, true} {
		t.Run(fmt.Sprint("atomic: ", atomic), func(t *testing.T) {
			t.Parallel()
			nc := devtest.NATS(t)
			subject := fmt.Sprintf("dupother%t", atomic)
			s := looseStream(t, nc, jetstream.StreamConfig{Name: "DUPOTHER" + subject, Subjects: []string{subject + ".>"}, AllowAtomicPublish: atomic})
			var p *publisher
			if atomic {
				p = &begin(t, connect(t, nc.ConnectedUrl()), (&leaseTable{}).claim()).publisher
			} else {
				p = publish(t, connect(t, nc.ConnectedUrl()))
			}
			first := event(1, subject+".a", "e-1")
			first.Headers = map[string]string{"x": "1"}
			p.send(first)
			if o := p.next(); o.class != broker.Stored || o.duplicate {
				t.Fatalf("outcome %+v, want stored", o)
			}
			for _, tt := range []struct {
				name   string
				change func(ev *broker.Event)
				same   bool
			}{
				{"the same event", func(*broker.Event) {}, true},
				{"it was written at another time", func(ev *broker.Event) { ev.LoggedAt = ev.LoggedAt.Add(time.Second) }, true},
				{"other data", func(ev *broker.Event) { ev.Data = []byte(`{"n":2}`) }, false},
				{"another type", func(ev *broker.Event) { ev.Type += ".b" }, false},
				{"another key", func(ev *broker.Event) { ev.Key = "k2" }, false},
				{"another header", func(ev *broker.Event) { ev.Headers = map[string]string{"x": "2"} }, false},
				{"it was scheduled", func(ev *broker.Event) { ev.NotBefore = ev.LoggedAt }, true},
			} {
				ev := first
				tt.change(&ev)
				p.send(ev)
				o := p.next()
				if tt.same && (o.class != broker.Stored || !o.duplicate) {
					t.Errorf("%s: outcome %+v, want a duplicate", tt.name, o)
				}
				if !tt.same && (o.class != broker.Permanent || !errors.Is(o.err, postroom.ErrEventConflict)) {
					t.Errorf("%s: outcome %+v, want %s and %v", tt.name, o, broker.Permanent, postroom.ErrEventConflict)
				}
			}
			if got := storedIDs(t, s); !slices.Equal(got, []string{"e-1"}) {
				t.Errorf("the stream has %v, want the first event", got)
			}
		})
	}
}
