package integration

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/internal/reconcile"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/operator"
	"github.com/postroom/postroom/relay"
)

var draws = flag.Int("draws", 1, "how many times TestStreamThatLosesAtRandom draws faults")

// A stream loses what it acknowledged in many ways, relays crash and stall, and operators pause and
// republish, in a random order. In the end the promises of docs/reference/guarantees.md hold. A test
// that fails names the promise, and the faults:
//
//	go test ./integration -run TestStreamThatLosesAtRandom -draws 40
//	POSTROOM_SEED=42 go test ./integration -run 'TestStreamThatLosesAtRandom/draw_7$' -draws 8
func TestStreamThatLosesAtRandom(t *testing.T) {
	t.Parallel()
	for i := range *draws {
		t.Run(fmt.Sprintf("draw %d", i), func(t *testing.T) { t.Parallel(); loseAtRandom(t, devtest.Random(t, 100+i)) })
	}
}

// losses is a lossy shop, and what happened to it.
type losses struct {
	*lossyShop

	random *rand.Rand
	atomic bool
	store  *operator.Store
	relays []*process
	begun  int      // how many relays were started
	saved  []string // copies of the broker's storage, the oldest first
	story  []string // what happened

	// removed has the events of which an operator removed a message, and of which none ordered the
	// repair since then. Only reconcile finds these. If the stream was purged, reconcile cannot know that
	// it had them, and only a republish brings them back.
	removed map[string]bool
	purged  bool // the last fault was a purge

	lost   bool // the stream lost something, or an operator removed or republished something
	paused bool
	remade bool // the stream was made again, and relays may not have noticed it
}

// faults are what can happen, and how often.
var faults = []struct {
	name string
	odds int
	do   func(l *losses)
}{
	{"the stream is made again", 2, func(l *losses) { l.remake(false) }},
	{"the stream is made again with other settings", 2, func(l *losses) { l.remake(true) }},
	{"messages are deleted", 4, (*losses).deleteMessages},
	{"the storage is copied", 3, (*losses).copyStorage},
	{"an older copy replaces the storage", 5, (*losses).replaceStorage},
	{"the last messages are cut off", 2, (*losses).cutEnd},
	{"the last messages are deleted", 5, (*losses).deleteEnd},
	{"the broker is stopped", 1, func(l *losses) { l.whileStopped(func() error { return nil }) }},
	{"a relay is killed", 3, (*losses).killRelay},
	{"a relay stalls for longer than its lease", 1, (*losses).stallRelay},
	{"one more relay starts", 1, (*losses).addRelay},
	{"a republish is ordered", 2, (*losses).republish},
	{"reconcile repairs", 3, (*losses).repair},
	{"relays are paused, or go on", 1, (*losses).pauseOrResume},
}

func loseAtRandom(t *testing.T, random *rand.Rand) {
	atomic := random.IntN(3) == 0
	l := &losses{lossyShop: openLossyShopWithoutRelay(t, atomic), random: random, atomic: atomic, removed: map[string]bool{}}
	l.store = operator.New(l.pool, operator.Config{})
	l.mixed.Store(true)
	l.displaced = map[string]bool{}
	t.Cleanup(func() {
		if t.Failed() || testing.Verbose() {
			t.Logf("what happened, in atomic batches %t:\n\t%s", atomic, strings.Join(l.story, "\n\t"))
		}
	})
	for range 2 {
		l.addRelay()
	}
	l.grow(20)
	l.work()
	total := 0
	for _, f := range faults {
		total += f.odds
	}
	for range 5 + random.IntN(6) {
		n := random.IntN(total)
		for _, f := range faults {
			if n -= f.odds; n < 0 {
				l.note("%s", f.name)
				f.do(l)
				break
			}
		}
		if t.Failed() {
			return
		}
		l.work()
	}
	if random.IntN(4) == 0 {
		l.purge()
	}
	l.conclude()
}

// note adds to what happened.
func (l *losses) note(format string, args ...any) {
	l.story = append(l.story, fmt.Sprintf("%s: %s, after %d events", time.Now().Format("05.000"), fmt.Sprintf(format, args...), l.orders()))
}

// work lets the clients write, or not. Often it waits until relays have published all of it.
func (l *losses) work() {
	l.Helper()
	switch n := l.random.IntN(60); {
	case n < 15:
		return
	case n < 25:
		l.hurry(n)
		return
	default:
		l.grow(n)
	}
	if l.random.IntN(4) > 0 && l.takes() {
		l.waitUntilPublished()
		l.note("all is published")
	}
}

// takes reports whether the stream has room for all events, and relays are not paused.
func (l *losses) takes() bool {
	stream := l.stand()
	return stream != nil && stream.CachedInfo().Config.MaxMsgs < 0 && !l.paused
}

// stand returns the stream, or nil if there is none.
func (l *losses) stand() jetstream.Stream {
	l.Helper()
	stream, err := l.js.Stream(l.Context(), l.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		l.Fatal(err)
	}
	return stream
}

// waitUntilPublished waits until all events that are committed now are published for the first time.
func (l *losses) waitUntilPublished() {
	l.Helper()
	var last int64
	if err := l.pool.QueryRow(l.Context(), "SELECT coalesce(max(seq), 0) FROM postroom.outbox").Scan(&last); err != nil {
		l.Fatal(err)
	}
	devtest.Eventually(l.T, time.Minute, "relays to publish all events", func() (done bool) {
		err := l.pool.QueryRow(l.Context(), "SELECT high >= $1 AND (isempty(pending) OR lower(pending) > $1) FROM postroom.relay", last).Scan(&done)
		return err == nil && done
	})
}

// settings returns the configuration of a stream.
func (l *losses) settings(other bool) jetstream.StreamConfig {
	cfg := jetstream.StreamConfig{
		Name: l.stream, Subjects: []string{l.stream + ".>"}, Discard: jetstream.DiscardNew, AllowAtomicPublish: l.atomic,
	}
	if l.atomic {
		cfg.Subjects = append(cfg.Subjects, natsjs.LeaseSubjects(l.stream))
	}
	if other {
		cfg.MaxAge = []time.Duration{0, time.Hour, 24 * time.Hour}[l.random.IntN(3)]
		cfg.Duplicates = []time.Duration{0, 100 * time.Millisecond, time.Second}[l.random.IntN(3)]
		cfg.AllowDirect = l.random.IntN(2) == 0
		if l.random.IntN(3) == 0 {
			cfg.MaxMsgs = 10 + l.random.Int64N(200) // it becomes full
		}
		if l.random.IntN(3) == 0 {
			cfg.MaxBytes = 1 << 30
		}
	}
	return cfg
}

// remake deletes the stream, and makes it again, maybe later.
func (l *losses) remake(other bool) {
	l.Helper()
	l.beNoticed()
	l.lost, l.remade = true, true
	if l.stand() != nil {
		if err := l.js.DeleteStream(l.Context(), l.stream); err != nil {
			l.Fatal(err)
		}
	}
	if l.random.IntN(3) == 0 {
		l.grow(5)
	}
	l.create(l.settings(other))
}

// create makes the stream. For a moment after the old one was deleted, the server may be unable to.
func (l *losses) create(cfg jetstream.StreamConfig) {
	l.Helper()
	l.note("a stream with max age %s, window %s, direct %t, at most %d messages and %d bytes", cfg.MaxAge, cfg.Duplicates, cfg.AllowDirect, cfg.MaxMsgs, cfg.MaxBytes)
	var err error
	devtest.Eventually(l.T, 10*time.Second, "the stream to be made again", func() bool {
		_, err = l.js.CreateStream(l.Context(), cfg)
		var refused *jetstream.APIError
		return err == nil || !errors.As(err, &refused) || refused.ErrorCode != 10049
	})
	if err != nil {
		l.Fatal(err)
	}
}

// purge removes the messages that handlers have read. What the stream had is lost until an operator
// republishes it. This is the last fault: if the stream lost its end soon after it dropped messages, the
// relay could not know what it had.
func (l *losses) purge() {
	l.Helper()
	l.note("the stream is purged")
	l.beNoticed()
	if err := l.stand().Purge(l.Context(), jetstream.WithPurgeSequence(1+l.read())); err != nil {
		l.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost, l.purged = true, true
	for id := range l.committed {
		l.removed[id] = true
	}
}

// read returns up to which sequence the ordered handler has read the stream. If an unread message was
// deleted, and an older copy of the storage brought it back, the handler would run its event after later
// ones of the key. Streams that natsjs.EnsureStream made do not allow deletes.
func (l *losses) read() (seq uint64) {
	l.Helper()
	if err := l.pool.QueryRow(l.Context(), "SELECT coalesce(max(floor), 0) FROM postroom.subscription WHERE handler = 'ordered'").Scan(&seq); err != nil {
		l.Fatal(err)
	}
	return min(seq, l.stand().CachedInfo().State.LastSeq)
}

// beNoticed waits until relays have found out that the stream was made again. Until then, they publish
// new events before the lost ones. If the stream lost these too, ordered handlers had them too early.
func (l *losses) beNoticed() {
	l.Helper()
	stream := l.stand()
	if !l.remade || stream == nil {
		return
	}
	if l.paused {
		l.pauseOrResume()
	}
	created := stream.CachedInfo().Created
	devtest.Eventually(l.T, time.Minute, "relays to notice that the stream was made again", func() bool {
		var known *time.Time
		err := l.pool.QueryRow(l.Context(), "SELECT (SELECT (streams -> $1 ->> 'created')::timestamptz FROM postroom.relay)", l.stream).Scan(&known)
		return err == nil && (known == nil || known.Equal(created.Truncate(time.Microsecond)) || known.Equal(created.Round(time.Microsecond)))
	})
	l.remade = false
}

// deleteMessages deletes single messages that handlers have read, most of them new ones. It leaves the
// first message: reconcile does not know whether the stream had what is older than its first message.
func (l *losses) deleteMessages() {
	l.Helper()
	l.beNoticed()
	first, last := l.stand().CachedInfo().State.FirstSeq+1, l.read()
	for range 1 + l.random.IntN(10) {
		if last <= first {
			return
		}
		seq := first + l.random.Uint64N(last-first+1)
		if l.random.IntN(2) == 0 {
			seq = max(first, last-min(l.random.Uint64N(20), last))
		}
		if id := l.deleteMessage(seq); id != "" {
			l.note("message %d is deleted, event %s", seq, l.name(id))
			l.removed[id], l.displaced[id] = true, true
		}
	}
}

// deleteEnd deletes the last messages while no relay runs, often twice: the second time, the stream loses
// what repaired the first loss.
func (l *losses) deleteEnd() {
	l.Helper()
	l.beNoticed()
	for i := range 1 + l.random.IntN(3) {
		if i > 0 {
			l.work()
		}
		if l.random.IntN(2) == 0 {
			l.deleteMessages()
		}
		l.stopRelays()
		state := l.stand().CachedInfo().State
		last := min(state.LastSeq, uint64(l.known())) //nolint:gosec // a sequence
		from := max(state.FirstSeq+1, last-min(last, l.random.Uint64N(50)))
		for seq := from; seq <= state.LastSeq; seq++ {
			l.deleteMessage(seq)
		}
		l.note("messages %d to %d are deleted", from, state.LastSeq)
		l.addRelay()
	}
}

// stopRelays stops all relays. Most of them give back their lease.
func (l *losses) stopRelays() {
	l.Helper()
	for _, p := range l.relays {
		if l.random.IntN(4) > 0 {
			p.signal(l.T, syscall.SIGTERM)
			_ = p.cmd.Wait() // its log says why it failed
		}
		p.kill()
	}
	l.relays = nil
}

// deleteMessage deletes a message, and returns the id of its event.
func (l *losses) deleteMessage(seq uint64) (id string) {
	l.Helper()
	stream := l.stand()
	m, err := stream.GetMsg(l.Context(), seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return ""
	}
	if err == nil {
		id = m.Header.Get("ce-id")
		err = stream.DeleteMsg(l.Context(), seq)
	}
	if err != nil {
		l.Fatal(err)
	}
	l.lost = true
	return id
}

// name names an event for people.
func (l *losses) name(id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c, ok := l.committed[id]; ok {
		return fmt.Sprintf("%+v (%s)", c, id[max(0, len(id)-6):])
	}
	return id
}

func (l *losses) copyStorage() {
	l.Helper()
	saved := filepath.Join(l.TempDir(), "saved")
	l.whileStopped(func() error { return os.CopyFS(saved, os.DirFS(l.broker.Dir())) })
	l.saved = append(l.saved, saved)
}

// replaceStorage puts the storage back to a copy, often twice to the same one: the second time, the
// stream loses what repaired the first loss.
func (l *losses) replaceStorage() {
	l.Helper()
	if len(l.saved) == 0 {
		l.copyStorage()
		l.grow(1 + l.random.IntN(40))
	}
	l.beNoticed()
	l.lost = true
	n := len(l.saved) - 1 - min(l.random.IntN(4)/2, len(l.saved)-1) // seldom an older one than the last
	for i := range 1 + l.random.IntN(2) {
		if i > 0 {
			l.work()
		}
		rollBack(l.lossyShop, l.saved[n])
		l.note("copy %d is the storage", n)
	}
	l.orStream()
}

// orStream makes the stream if a copy of the storage has none.
func (l *losses) orStream() {
	l.Helper()
	if l.stand() == nil {
		l.create(l.settings(false))
	}
}

func (l *losses) cutEnd() {
	l.Helper()
	l.beNoticed()
	l.lost = true
	l.whileStopped(l.cut)
	l.orStream()
}

func (l *losses) addRelay() {
	l.Helper()
	l.begun++
	atomic := atomicVar + "="
	if l.atomic {
		atomic += "yes"
	}
	l.relays = append(l.relays, startRelay(l.T, fmt.Sprint("relay ", l.begun), l.url, l.broker.URL(), atomic, checkVar+"=1s"))
}

// killRelay kills a relay, and starts another before or after something else happens.
func (l *losses) killRelay() {
	l.Helper()
	if l.random.IntN(2) == 0 {
		l.hurry(20)
	}
	i := l.random.IntN(len(l.relays))
	l.relays[i].kill()
	l.relays = slices.Delete(l.relays, i, i+1)
	if len(l.relays) < 2 {
		l.addRelay()
	}
}

// stallRelay stops a relay for longer than its lease. It goes on beside the one that leads by then.
func (l *losses) stallRelay() {
	l.Helper()
	p := l.relays[l.random.IntN(len(l.relays))]
	p.signal(l.T, syscall.SIGSTOP)
	defer p.signal(l.T, syscall.SIGCONT)
	enough := time.Now().Add(2 * lease)
	devtest.Eventually(l.T, 30*time.Second, "the lease to end, or to belong to another relay", func() (over bool) {
		err := l.pool.QueryRow(l.Context(), "SELECT coalesce(expires_at < clock_timestamp() OR clock_timestamp() > $1::timestamptz, true) FROM postroom.relay", enough).Scan(&over)
		return err == nil && over
	})
}

// republish orders copies of all events, or of some keys.
func (l *losses) republish() {
	l.Helper()
	l.lost = true // an ordered handler that did not have an event yet holds the copy as late
	req := operator.RepublishRequest{All: true}
	if l.random.IntN(2) == 0 {
		req = operator.RepublishRequest{Keys: []string{"1", "2", "3", "5", "8"}}
	}
	req.Name = fmt.Sprint("republish ", len(l.story))
	if _, err := l.store.Republish(l.Context(), req, operatorsReason); err != nil && !errors.Is(err, operator.ErrNoEvents) {
		l.Fatal(err)
	}
}

// repair compares the stream, and orders that missing events are published again. It waits until
// that is done.
func (l *losses) repair() {
	l.Helper()
	if !l.takes() {
		return
	}
	l.waitUntilPublished()
	l.note("%d events were missing, and were published again", len(l.order(l.compare())))
}

// order orders the repair of events, and returns their ids when it is done.
func (l *losses) order(missing []int64) []string {
	l.Helper()
	ids := l.ids(missing)
	if len(missing) == 0 {
		return nil
	}
	made, err := l.store.RepublishSeqs(l.Context(), missing, 1000, operatorsReason)
	if err != nil {
		l.Fatal(err)
	}
	l.waitForRepublish(made[len(made)-1].ID)
	for _, id := range ids {
		delete(l.removed, id)
	}
	return ids
}

func (l *losses) republishAll() {
	l.Helper()
	made, err := l.store.Republish(l.Context(), operator.RepublishRequest{All: true, Name: "all"}, operatorsReason)
	if err != nil {
		l.Fatal(err)
	}
	l.waitForRepublish(made.ID)
	l.note("all were published again")
}

// scheduled returns the events that are held by the relay.
func (l *losses) scheduled() []string {
	l.Helper()
	rows, _ := l.pool.Query(l.Context(), "SELECT event_id FROM postroom.held WHERE handler = 'outbox'")
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		l.Fatal(err)
	}
	return ids
}

func (l *losses) waitForRepublish(id int64) {
	l.Helper()
	devtest.Eventually(l.T, time.Minute, "a republish to end", func() bool {
		now, err := l.store.FindRepublish(l.Context(), id)
		return err == nil && now.State == operator.RepublishDone
	})
}

// compare returns the events that reconcile misses.
func (l *losses) compare() []int64 {
	l.Helper()
	found, err := reconcile.Compare(l.Context(), pglog.New(l.pool), natsjs.NewPublisher(l.nc), reconcile.Config{})
	if err != nil || len(found) != 1 || found[0].Err != nil {
		l.Fatalf("Compare = %+v, %v", found, err)
	}
	if len(found[0].Conflicts) > 0 {
		l.Errorf("reconcile found conflicts %v", found[0].Conflicts)
	}
	return found[0].Missing
}

func (l *losses) ids(seqs []int64) []string {
	l.Helper()
	rows, _ := l.pool.Query(l.Context(), "SELECT event_id FROM postroom.outbox WHERE seq = ANY ($1)", seqs)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		l.Fatal(err)
	}
	return ids
}

func (l *losses) pauseOrResume() {
	l.Helper()
	var err error
	if l.paused {
		err = l.store.ResumeRelay(l.Context(), operatorsReason)
	} else {
		err = l.store.PauseRelay(l.Context(), 0, operatorsReason)
	}
	if err != nil {
		l.Fatal(err)
	}
	l.paused = !l.paused
}

// conclude ends the faults, and checks the promises.
func (l *losses) conclude() {
	l.Helper()
	l.note("the faults end")
	if l.paused {
		l.pauseOrResume()
	}
	cfg := l.stand().CachedInfo().Config
	cfg.MaxMsgs = -1
	if _, err := l.js.UpdateStream(l.Context(), cfg); err != nil {
		l.Fatal(err)
	}
	l.stopRelays()
	l.startRelayHere(relay.Config{Atomic: l.atomic, Lease: lease, AcceptRisks: shortWindow, CheckEvery: time.Second})
	devtest.Eventually(l.T, time.Minute, "the last relay to lead", func() bool { return l.relay.Health().State == relay.Leading })
	l.grow(1) // it publishes that after it compared the stream
	l.stopClients()
	l.overrideNextAtOfRefused()
	l.waitUntilSettled()

	l.none("Events that the broker refuses", "SELECT event_id || ' is dead: ' || class FROM postroom.held WHERE handler = 'outbox' AND dead_at IS NOT NULL")
	missing := l.missing()
	for _, id := range missing {
		if !l.removed[id] {
			l.Errorf("Repair: event %s is missing in the stream, and no operator removed it from the middle: the relay has to publish again what a stream lost at its end", l.name(id))
		}
	}
	if !l.purged {
		found := l.compare()
		ids := l.ids(found)
		slices.Sort(ids)
		if slices.Sort(missing); !slices.Equal(ids, missing) {
			l.Errorf("Repair: reconcile finds that %d events are missing, and %d are", len(ids), len(missing))
		}
		l.order(found)
	} else {
		l.republishAll()
	}
	l.waitUntilSettled()
	for _, id := range l.missing() {
		l.Errorf("Repair: event %s is not in the stream after an operator's repair", l.name(id))
	}
	if again := l.compare(); len(again) > 0 {
		l.Errorf("Repair: reconcile finds %d missing events after an operator's repair", len(again))
	}
	for _, loss := range l.relay.Health().Losses {
		if loss.RepairedAt.IsZero() {
			l.Errorf("Repair: the relay's health has a loss that is not repaired: %+v", loss)
		}
	}
	if l.Failed() {
		return
	}
	// Handlers that start look for what they lack. Those that run look every minute.
	l.stopKinds()
	l.stopHandlers()
	l.stopKinds, l.stopHandlers = l.startKinds(), l.startHandlers()
	l.note("the handlers have started again")
	if late := l.waitUntilIdle(); late > 0 && !l.lost {
		l.Errorf("KeyOrder: %d events are late at the ordered handler, and the stream lost nothing", late)
	}
}

// overrideNextAtOfRefused makes events due that were refused while there was no stream.
// TestASubjectHasNoStream waits for them.
func (l *losses) overrideNextAtOfRefused() {
	l.Helper()
	l.exec("UPDATE postroom.held SET next_at = now() WHERE handler = 'outbox' AND class IS NOT NULL AND next_at > now()")
}

// waitUntilSettled waits until relays have nothing to do.
func (l *losses) waitUntilSettled() {
	l.Helper()
	var state string
	defer func() {
		if l.Failed() {
			l.Log(state)
		}
	}()
	devtest.Eventually(l.T, time.Minute, "the relay to have nothing to do", func() bool {
		err := l.pool.QueryRow(l.Context(), `SELECT concat_ws(' ',
			(SELECT 'behind' FROM postroom.relay WHERE high < (SELECT max(seq) FROM postroom.outbox)),
			(SELECT 'pending ' || pending::text FROM postroom.relay WHERE NOT isempty(pending) OR catch_up_snap IS NOT NULL),
			(SELECT 'held ' || count(*) FROM postroom.held WHERE handler = 'outbox' AND dead_at IS NULL HAVING count(*) > 0),
			(SELECT 'republishes ' || count(*) FROM postroom.republish WHERE state = 'running' HAVING count(*) > 0))`).Scan(&state)
		if err != nil {
			state = err.Error()
		}
		return state == "" && !slices.ContainsFunc(l.relay.Health().Losses, func(loss relay.Loss) bool { return loss.RepairedAt.IsZero() })
	})
}

// missing returns the committed events that are neither in the stream nor named as held.
func (l *losses) missing() []string {
	l.Helper()
	there, _ := copies(l.T, l.js, l.stream)
	for _, id := range l.scheduled() {
		there[id] = nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var missing []string
	for id := range l.committed {
		if _, ok := there[id]; !ok {
			missing = append(missing, id)
		}
	}
	return missing
}
