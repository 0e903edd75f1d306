package inspect

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/held"
)

// KeyFilter says which keys to return. The zero value selects the first 100 keys.
type KeyFilter struct {
	// Handler selects the keys of one handler. Outgoing selects the keys of events on their way to
	// the broker. Empty selects all.
	Handler string

	// Key selects one key. Empty means all.
	Key string

	// State selects the keys whose first event is in this state. Empty means any state.
	State held.State

	// After is the Next of the previous page. Nil selects the first page.
	After *KeyPosition

	// Limit is the largest number of keys in a page.
	//
	// Defaults to 100; at most 1,000.
	Limit int
}

// KeyPosition is a position in the list of keys.
type KeyPosition struct{ Handler, Key string }

func (p KeyPosition) String() string { return p.Handler + "/" + p.Key }

// MarshalText returns the handler, a slash and the key.
func (p KeyPosition) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what MarshalText returned. A handler's name has no slash.
func (p *KeyPosition) UnmarshalText(text []byte) error {
	handler, key, ok := strings.Cut(string(text), "/")
	if !ok {
		return errors.New("want a handler and a key, for instance ledger.move/account-7")
	}
	*p = KeyPosition{Handler: handler, Key: key}
	return nil
}

// Keys is a page of keys, sorted by handler and key.
type Keys struct {
	Keys []Key `json:"keys"`

	// Next is the After of the next page. It is nil if this is the last page. For a page, Keys
	// reads at most 10,000 keys. So a page with a Next can have fewer keys than Limit, or none.
	Next *KeyPosition `json:"next,omitempty"`
}

// Key is a key that has held events.
type Key struct {
	Handler string `json:"handler"`
	Key     string `json:"key"`
	Head    Head   `json:"head"`

	// Behind is how many events wait behind the head, counted up to 1,000. More says that counting
	// stopped, so there may be more.
	Behind int64 `json:"behind"`
	More   bool  `json:"more"`
}

// Head is the first event of a key. The other events of the key wait for it.
type Head struct {
	ID       int64      `json:"id"` // id of the event's row in the table held
	Source   string     `json:"source"`
	EventID  string     `json:"event_id"`
	Type     string     `json:"type"`
	State    held.State `json:"state"`
	Class    string     `json:"class,omitempty"`
	Failure  string     `json:"failure,omitempty"` // text of the last failure
	Attempts int64      `json:"attempts"`
	NextAt   time.Time  `json:"next_at,omitzero"` // when the next attempt is due, or when the claim ends

	// Since is when the event died, or else when it first failed, or else when it was held.
	Since      time.Time `json:"since"`
	AgeSeconds float64   `json:"age_seconds"`
}

// keyRow is a key. It also says whether the key matches the filter, and whether the search ended at
// this key.
type keyRow struct {
	Key

	wanted, last bool
}

func scanKey(row pgx.CollectableRow, k *keyRow) error {
	h := &k.Head
	err := row.Scan(&k.Handler, &k.Key.Key, &k.wanted, &k.last, &h.ID, &h.Source, &h.EventID, &h.Type, &h.State, &h.Class, &h.Failure,
		&h.Attempts, at(&h.NextAt), at(&h.Since), &h.AgeSeconds, &k.Behind)
	//guard:a-bound-of-a-key-says-so false
	k.More = k.Behind >= countedBehind
	return err
}

// Numbers up to which statements count: keys.sql, key.sql and discarded_count.sql.
const (
	countedBehind    = 1000
	countedDiscarded = 100_000
)

// The limits of a page.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

func limit(n int) int { return min(max(cmp.Or(n, defaultLimit), 1), maxLimit) }

// fill adds the found keys to the page. If there may be more keys, fill sets Next.
func (p *Keys) fill(all []keyRow, room int) {
	for _, k := range all {
		if len(p.Keys) == room {
			last := p.Keys[room-1]
			p.Next = &KeyPosition{Handler: last.Handler, Key: last.Key}
			return
		}
		if k.wanted {
			p.Keys = append(p.Keys, k.Key)
		}
		if k.last {
			p.Next = &KeyPosition{Handler: k.Handler, Key: k.Key.Key}
		}
	}
}

// readKey looks up one key, for one handler or for all.
func readKey(m *view, page *Keys, f KeyFilter) error {
	handlers := []string{f.Handler}
	if f.Handler == "" {
		var err error
		handlers, err = rows(m, "handlers", m.sql.HandlersWithKeys, func(row pgx.CollectableRow, h *string) error { return row.Scan(h) })
		if err != nil {
			return err
		}
	}
	for _, h := range handlers {
		found, err := rows(m, "key", m.sql.Key, scanKey, h, f.Key)
		if err != nil {
			return err
		}
		for _, k := range found {
			if f.State == "" || k.Head.State == f.State {
				page.Keys = append(page.Keys, k.Key)
			}
		}
	}
	return nil
}
