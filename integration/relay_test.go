package integration

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
)

// leaderOf waits until a process has begun more terms than terms says, and returns that process.
func leaderOf(t *testing.T, terms map[*process]int) *process {
	t.Helper()
	var leader *process
	devtest.Eventually(t, 30*time.Second, "a relay to lead", func() bool {
		for p, before := range terms {
			if p.led() > before {
				leader = p
				terms[p] = p.led()
				return true
			}
		}
		return false
	})
	return leader
}

// The leader is killed again and again. The standby goes on from the leader's last record.
// Events that the leader had published and not recorded come a second time. The stream drops
// them within its duplicate window, and the inbox after that.
func TestStandbyTakesOverFromAKilledLeader(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		window time.Duration
		atomic string
	}{
		{"repetitions are dropped by the stream", 2 * time.Minute, ""},
		{"repetitions are dropped by the inbox", 100 * time.Millisecond, ""},
		{"atomic batches, repetitions are dropped by the stream", 2 * time.Minute, "yes"},
		{"atomic batches, repetitions are dropped by the inbox", 100 * time.Millisecond, "yes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, devtest.NATS(t), tt.window)
			terms := map[*process]int{}
			for i := range 2 {
				terms[startRelay(t, fmt.Sprint("relay ", i), s.url, devtest.NATSURL(t), atomicVar+"="+tt.atomic)] = 0
			}
			for round := range 2 {
				leader := leaderOf(t, terms)
				s.grow(50)
				s.hurry(100)
				leader.kill()
				delete(terms, leader)
				terms[startRelay(t, fmt.Sprint("relay ", 2+round), s.url, devtest.NATSURL(t), atomicVar+"="+tt.atomic)] = 0
			}
			leaderOf(t, terms)
			s.grow(50)
			s.waitUntilIdle()
		})
	}
}

// A leader is stopped for longer than its lease. When it goes on, it finds that another leads.
// It records nothing more, and with atomic batches the broker takes nothing more from it.
func TestAPausedLeaderDoesNoHarm(t *testing.T) {
	t.Parallel()
	for name, atomic := range map[string]string{"single publishes": "", "atomic batches": "yes"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pauseLeaders(t, atomicVar+"="+atomic)
		})
	}
}

func pauseLeaders(t *testing.T, strategy string) {
	s := openShop(t, devtest.NATS(t), 100*time.Millisecond)
	terms := map[*process]int{}
	for i := range 2 {
		terms[startRelay(t, fmt.Sprint("relay ", i), s.url, devtest.NATSURL(t), strategy)] = 0
	}
	for range 2 {
		paused := leaderOf(t, terms)
		s.grow(50)
		s.hurry(100)
		paused.signal(t, syscall.SIGSTOP)
		leaderOf(t, terms)
		s.grow(50)
		paused.signal(t, syscall.SIGCONT)
		for p := range terms { // the other one leaves, so that the paused one leads again
			if p != paused {
				p.signal(t, syscall.SIGTERM)
				delete(terms, p)
			}
		}
		terms[startRelay(t, "relay", s.url, devtest.NATSURL(t), strategy)] = 0
	}
	leaderOf(t, terms)
	s.waitUntilIdle()
}

// While the broker is away, events accumulate in the log, and nothing else happens.
func TestBrokerOutage(t *testing.T) {
	t.Parallel()
	broker := devtest.OwnNATS(t)
	nc, err := nats.Connect(broker.URL(), natsjs.ConnectOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	s := openShop(t, nc, 100*time.Millisecond)
	r := relay.New(s.pool, natsjs.NewPublisher(nc), relay.Config{AcceptRisks: shortWindow})
	stop := s.background(func(ctx context.Context) {
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run = %v: an outage is no reason to return", err)
		}
	})
	for range 2 {
		s.grow(50)
		s.hurry(100)
		broker.Stop()
		s.grow(100)
		if err := broker.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.waitUntilIdle()
	stop()
}
