package inspect

import (
	"cmp"
	"time"

	"github.com/jackc/pgx/v5"
)

// KeyFilter says which keys to return. The zero value: the first hundred of all.
type KeyFilter struct {
	// Handler is whose keys; Outgoing for those on their way to the broker. Empty: all.
	Handler string

	// Key is one key. Empty: all.
	Key string

	// State is the state of the event at the head. Empty: any.
	State State

	// After is where to begin: the Next of the page before.
	After *KeyPosition

	// Limit is the most keys of a page.
	//
	// Defaults to 100; at most 1,000.
	Limit int
}

// KeyPosition is a place in the list of keys.
type KeyPosition struct {
	Handler string `json:"handler"`
	Key     string `json:"key"`
}

// Keys is a page of keys, by handler and key.
type Keys struct {
	Keys []Key `json:"keys"`

	// Next is where the next page begins; nil where this is the last. A page looks at
	// 10,000 keys at the most, and so may have fewer than Limit, or none, and a Next.
	Next *KeyPosition `json:"next,omitempty"`
}

// Key is a key that events wait for.
type Key struct {
	Handler string `json:"handler"`
	Key     string `json:"key"`
	Head    Head   `json:"head"`

	// Behind is how many events wait behind the head, counted up to 1,000.
	Behind int64 `json:"behind"`
}

// Head is the event that the others of its key wait for.
type Head struct {
	ID       int64     `json:"id"` // in held
	Source   string    `json:"source"`
	EventID  string    `json:"event_id"`
	Type     string    `json:"type"`
	State    State     `json:"state"`
	Class    string    `json:"class,omitempty"`
	Failure  string    `json:"failure,omitempty"` // the last one
	Attempts int64     `json:"attempts"`
	NextAt   time.Time `json:"next_at,omitzero"` // when the next attempt is due, or the claim ends

	// Since is when it died, or first failed, or was held.
	Since      time.Time `json:"since"`
	AgeSeconds float64   `json:"age_seconds"`
}

// keyRow is a key, and whether it is one that was asked for, and the last that was
// looked at.
type keyRow struct {
	Key

	wanted, last bool
}

func scanKey(row pgx.CollectableRow, k *keyRow) error {
	h := &k.Head
	return row.Scan(&k.Handler, &k.Key.Key, &k.wanted, &k.last, &h.ID, &h.Source, &h.EventID, &h.Type, &h.State, &h.Class, &h.Failure,
		&h.Attempts, at(&h.NextAt), at(&h.Since), &h.AgeSeconds, &k.Behind)
}

// limits of a page.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

func limit(n int) int { return min(max(cmp.Or(n, defaultLimit), 1), maxLimit) }

// fill takes what was found, which may be one key more than the page has room for.
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

// readKey looks a key up, at its handler or at all.
func readKey(m *snapshot, page *Keys, f KeyFilter) error {
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
