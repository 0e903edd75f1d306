package pglog

import (
	"slices"
	"strings"
	"time"

	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/cause"
	"github.com/postroom/postroom/internal/seqset"
)

// changes are what a recording does beside the state: to held, above all.
type changes struct {
	schedule []int64    // of the log, to be published later
	settle   []int64    // published from held
	rehold   holdings   // refused again
	hold     holdings   // of the log, refused or behind one that was
	read     []int64    // of these, those that are published for the first time
	keys     []string   // whose first held event may be another now
	woken    []string   // of these, those of events that were published from held
	late     seqset.Set // lost by the broker, and too late to be published in order
	mark     bool       // a mark is made too

	advances []advance // how far rewinds are

	unstorable *unstorable // instead of all that: one that could not be held as it is
}

func (c *changes) empty() bool {
	return !c.mark && c.unstorable == nil && len(c.schedule)+len(c.settle)+len(c.rehold.seqs)+len(c.hold.seqs)+len(c.late)+len(c.advances) == 0
}

// sortKeys has each key once.
func (c *changes) sortKeys() {
	slices.Sort(c.keys)
	c.keys = slices.Compact(c.keys)
}

func (c *changes) touch(key string) {
	if n := len(c.keys); key != "" && (n == 0 || c.keys[n-1] != key) {
		c.keys = append(c.keys, key)
	}
}

// holdings are the columns of hold.sql.
type holdings struct {
	seqs          []int64
	keys          []*string
	classes, text []*string
	attempts      []int32
	dead          []bool
	after         []time.Duration
	fingerprints  [][]byte
	rewinds       []*int64

	waking []string // no column: the key of each whose first held event it may be
}

func (hs *holdings) add(h eventlog.Holding, waking string) {
	hs.seqs, hs.waking = append(hs.seqs, h.Seq), append(hs.waking, waking)
	hs.keys = append(hs.keys, optional(h.Key))
	f := h.Failure
	if f == nil {
		f = &eventlog.Failure{}
	}
	hs.classes = append(hs.classes, optional(f.Class))
	hs.text = append(hs.text, optional(printable(f.Text)))
	hs.attempts = append(hs.attempts, int32(min(f.Attempts, 1<<30))) //nolint:gosec // bounded here
	hs.dead = append(hs.dead, f.Dead)
	hs.after = append(hs.after, f.After)
	var fingerprint []byte
	if f.Class != "" {
		fingerprint = cause.Fingerprint(outgoing, f.Class, "", f.Text, h.Key)
	}
	hs.fingerprints = append(hs.fingerprints, fingerprint)
	var rewind *int64
	if h.Rewind != 0 {
		rewind = &h.Rewind
	}
	hs.rewinds = append(hs.rewinds, rewind)
}

func (hs *holdings) parameters(epoch int64) []any {
	return []any{epoch, hs.seqs, hs.keys, hs.classes, hs.text, hs.attempts, hs.dead, hs.after, hs.fingerprints, hs.rewinds}
}

// outgoing is the handler of held events that are on their way to the broker.
const outgoing = "outbox"

// maxText bounds the text of a failure that is stored.
const maxText = 500

// printable returns a text as the database can store it.
func printable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s[:min(len(s), maxText)], "?"), "\x00", "?")
}

// optional returns a text, nil for an empty one.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
