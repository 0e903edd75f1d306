package pglog

import (
	"slices"
	"strings"
	"time"

	"github.com/postroom/postroom/internal/cause"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/seqset"
)

// changes are what a call of Record writes besides the state. Most of them are for the table held.
type changes struct {
	schedule   []int64    // events of the log to hold until they are due
	published  []int64    // events that were published from the table held
	holdAgain  deferrals  // held events that the broker refused again
	hold       deferrals  // events of the log that the broker refused, or that wait behind such an event
	heldFirst  []int64    // the seqs in the field hold, without the seqs of republishes
	keys       []string   // keys whose first held event may have changed
	unblocked  []string   // the keys of the events in the field published
	late       seqset.Set // lost events that must be republished, because later events of their keys were published
	checkpoint bool       // the recording also makes a checkpoint
	bytes      int        // the size of the events

	republishes []republishProgress // the progress of republishes

	unstorable *unstorable // an event that could not be held unchanged; if this field is set, all other fields but keys are empty
}

// noted returns the events that the broker got out of their order since the last checkpoint: from the
// table held, or as copies of a republish.
func (c *changes) noted() []int64 {
	all := slices.Clone(c.published)
	for _, a := range c.republishes {
		all = append(all, a.copies...)
	}
	return all
}

func (c *changes) empty() bool {
	return !c.checkpoint && c.unstorable == nil && len(c.schedule)+len(c.published)+len(c.holdAgain.seqs)+len(c.hold.seqs)+len(c.late)+len(c.republishes) == 0
}

// sortKeys sorts the keys and removes duplicates.
func (c *changes) sortKeys() {
	slices.Sort(c.keys)
	c.keys = slices.Compact(c.keys)
}

// addKey adds a key, unless the key is empty or equal to the last one.
func (c *changes) addKey(key string) {
	if n := len(c.keys); key != "" && (n == 0 || c.keys[n-1] != key) {
		c.keys = append(c.keys, key)
	}
}

// deferrals has the parameters of hold.sql. Each field is a list with one element for each event.
type deferrals struct {
	seqs          []int64
	keys          []*string
	classes, text []*string
	attempts      []int32
	dead          []bool
	after         []time.Duration
	fingerprints  [][]byte
	republishIDs  []*int64

	unblocks []string // not a parameter: the key of the event if the event may be the first held event of that key, or ""
}

func (hs *deferrals) add(h eventlog.Deferral, unblocks string) {
	hs.seqs, hs.unblocks = append(hs.seqs, h.Seq), append(hs.unblocks, unblocks)
	hs.keys = append(hs.keys, optional(h.Key))
	f := h.Failure
	if f == nil {
		f = &eventlog.Failure{}
	}
	//guard:a-class-of-any-length-is-held do hs.classes = append(hs.classes, optional(f.Class))
	hs.classes = append(hs.classes, optional(printable(f.Class, maxClass)))
	hs.text = append(hs.text, optional(printable(f.Text, maxText)))
	hs.attempts = append(hs.attempts, int32(min(f.Attempts, 1<<30))) //nolint:gosec // bounded here
	hs.dead = append(hs.dead, f.Dead)
	hs.after = append(hs.after, f.After)
	var fingerprint []byte
	if f.Class != "" {
		fingerprint = cause.Fingerprint(outgoing, f.Class, "", f.Text, h.Key)
	}
	hs.fingerprints = append(hs.fingerprints, fingerprint)
	var republish *int64
	if h.RepublishID != 0 {
		republish = &h.RepublishID
	}
	hs.republishIDs = append(hs.republishIDs, republish)
}

func (hs *deferrals) parameters(epoch int64) []any {
	return []any{epoch, hs.seqs, hs.keys, hs.classes, hs.text, hs.attempts, hs.dead, hs.after, hs.fingerprints, hs.republishIDs}
}

// outgoing is the value of column handler for held events that the relay publishes.
const outgoing = "outbox"

// The longest stored text and class of a failure, in bytes. A publisher that a user wrote chooses both.
const (
	maxText  = 500
	maxClass = 64
)

// printable returns the first bytes of a text, at most this many, as the database can store them.
func printable(s string, most int) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s[:min(len(s), most)], "?"), "\x00", "?")
}

// optional returns nil for an empty text.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
