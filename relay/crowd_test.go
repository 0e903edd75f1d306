package relay_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest/fakelog"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// crowdedLog is a log that counts the events that the relay has in memory. The events have the seqs from 1.
type crowdedLog struct {
	*fakelog.Log

	here, most int // guarded by Mu
}

func (l *crowdedLog) add(n int) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.here += n
	l.most = max(l.most, l.here)
}

func (l *crowdedLog) Lead(context.Context, string, time.Duration) (eventlog.Term, error) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return &crowdedTerm{Term: l.NewTerm(time.Now()), log: l}, nil
}

type crowdedTerm struct {
	*fakelog.Term

	log *crowdedLog
}

func (t *crowdedTerm) Read(ctx context.Context, limit int, into []broker.Event) (eventlog.Page, error) {
	page, err := t.Term.Read(ctx, limit, into)
	t.log.add(len(page.Events))
	return page, err
}

func (t *crowdedTerm) PutBack(seqs []int64) { t.log.add(-len(seqs)) }

func (t *crowdedTerm) ReadAgain(_ context.Context, seqs []int64) (page eventlog.Page, through int64, err error) {
	for _, seq := range seqs {
		page.Events = append(page.Events, t.log.Events[seq-1])
	}
	t.log.add(len(seqs))
	return page, seqs[len(seqs)-1], nil
}

// slowPublisher stores each millisecond the events that it has got, except those with the subject of a
// stream that is full.
type slowPublisher struct {
	sound

	log *crowdedLog
}

func (p *slowPublisher) Run(ctx context.Context, batches <-chan []*broker.Message, settle func(*broker.Message, broker.Outcome)) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var got []*broker.Message
	for {
		select {
		case <-ctx.Done():
			return nil
		case batch := <-batches:
			got = append(got, batch...)
		case <-tick.C:
			for _, m := range got {
				if m.Subject == "full" {
					settle(m, broker.Outcome{Class: broker.Unavailable, Stream: "FULL", Err: broker.ErrFull})
					continue
				}
				p.log.add(-1)
				settle(m, broker.Outcome{Class: broker.Stored, Stream: "S"})
			}
			got = nil
		}
	}
}

// A relay reads the log no further than its memory allows, also while it reads events of hot keys again.
func TestHotKeysDoNotFillTheMemory(t *testing.T) {
	const limit = 2000
	for name, tt := range map[string]struct {
		n     int
		event func(n int) (key, subject string)
		all   bool // all events can be published
	}{
		"many hot keys": {60_000, func(n int) (key, subject string) { return fmt.Sprint(n / 1500), "a" }, true},
		"a hot key and a full stream": {60_000, func(n int) (key, subject string) {
			if n%2 == 0 {
				return "hot", "a"
			}
			return "", "full"
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &crowdedLog{Log: fakelog.New()}
				for n := range tt.n {
					key, subject := tt.event(n)
					log.Events = append(log.Events, broker.Event{Seq: int64(n + 1), Event: postroom.Event{Key: key, Subject: subject, Type: "a.b"}})
				}
				running := start(relay.Over(log, &slowPublisher{log: log}, relay.Config{MaxUnpublished: limit}))
				after(10 * time.Minute)
				running.stop()
				running.wait(t)
				if published := len(log.PublishedSeqs()); tt.all && published != tt.n {
					t.Errorf("%d events are published, want %d", published, tt.n)
				}
				if log.most > 2*limit {
					t.Errorf("the relay had %d events in memory at once, and MaxUnpublished is %d", log.most, limit)
				}
			})
		})
	}
}
