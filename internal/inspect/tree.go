package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/postroom/postroom/internal/eventsearch"
	"github.com/postroom/postroom/internal/text"
)

// TreeQuery says which events a tree contains.
type TreeQuery struct {
	// ID is the id of an event. If no event has this id, Tree uses it as a correlation id.
	ID string

	// Source selects one of several events with this id. Empty selects all of them.
	Source string

	// Depth is the largest number of levels of causes in a tree, and also of levels of effects.
	//
	// Defaults to 20; at most 100.
	Depth int

	// Limit is the largest number of events in a tree.
	//
	// Defaults to 200; at most 1,000.
	Limit int
}

// EventTree is a business process. Each event is below its cause.
type EventTree struct {
	// Roots are the events without a known cause, sorted by their times. There may be several,
	// because a correlation id also connects events that do not cause each other.
	Roots []*TreeEvent `json:"roots"`

	// Events is how many events the tree has.
	Events int `json:"events"`

	// Notes say where the tree stops although there may be more events, and why.
	Notes []string `json:"notes"`
}

// TreeEvent is an event with its effects: the events that it caused.
type TreeEvent struct {
	EventSummary

	// Databases are the databases that have the event in their log, hold it, or have discarded it.
	// 0 is the database of the first inspector that was passed to Tree.
	Databases []int `json:"databases"`

	Asked   bool         `json:"asked"`   // the query asked for its id
	Missing bool         `json:"missing"` // no database has it: only its id is known
	Effects []*TreeEvent `json:"effects"` // sorted by time
}

const (
	defaultDepth, maxDepth = 20, 100
	defaultTree            = 200
)

// Tree returns the causes of an event and its effects: the events that it caused. It searches the
// databases of all inspectors, because each service may have its own. It finds causes and effects
// by causation id. It also adds events with the same correlation id. To find these, it reads at
// most 200,000 rows of each log, from the first event of the business process on.
// TreeEvent.Handlers has the states in all databases. Tree returns [ErrNotFound] if it finds
// neither the event, nor an effect of it, nor an event with the id as its correlation id.
//
// Tree keeps a read-only transaction open in each database until it returns. It does not ask the
// broker.
func Tree(ctx context.Context, q TreeQuery, of ...*Inspector) (*EventTree, error) {
	if q.ID == "" || !text.Valid(q.ID) || !text.Valid(q.Source) {
		return nil, errors.New("inspect: tree: ID is not the id of an event")
	}
	var grown *eventsearch.Tree
	err := inAll(ctx, of, nil, func(all []eventsearch.Database) (err error) {
		grown, err = eventsearch.Grow(ctx, eventsearch.TreeQuery{
			Source: q.Source, ID: q.ID,
			Depth: min(max(cmp.Or(q.Depth, defaultDepth), 1), maxDepth), Limit: min(max(cmp.Or(q.Limit, defaultTree), 1), maxLimit),
		}, all)
		return err
	})
	var one *eventsearch.DatabaseError
	switch {
	case errors.As(err, &one):
		return nil, fmt.Errorf("inspect: tree: database %d: %w", one.Database+1, of[one.Database].explain(one.Err))
	case errors.Is(err, eventsearch.ErrNotFound):
		return nil, fmt.Errorf("inspect: tree of %s: %w: no log has the event or an effect of it, it is not held, and the newest events do not have this correlation id", eventName(q.Source, q.ID), ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("inspect: tree: %w", err)
	}
	t := &EventTree{Roots: treeEvents(grown.Roots), Events: grown.Count, Notes: grown.Notes}
	if t.Notes == nil {
		t.Notes = []string{}
	}
	return t, nil
}

// inAll calls the function do with a snapshot of each inspector's database.
func inAll(ctx context.Context, of []*Inspector, opened []eventsearch.Database, do func(all []eventsearch.Database) error) error {
	if len(of) == 0 {
		return do(opened)
	}
	var inner error // an error of the function do or of another database
	err := of[0].inTx(ctx, func(m *view) error {
		inner = inAll(m.ctx, of[1:], append(opened, eventsearch.Database{Reader: m.events, DB: m.tx}), do)
		return inner
	})
	if inner != nil {
		return inner
	}
	return of[0].explain(err)
}

func treeEvents(nodes []*eventsearch.Node) []*TreeEvent {
	all := make([]*TreeEvent, len(nodes))
	for n, node := range nodes {
		all[n] = &TreeEvent{
			EventSummary: summary(&node.Event), Databases: append([]int{}, node.Databases...), Asked: node.Asked, Missing: node.Missing, Effects: treeEvents(node.Effects),
		}
	}
	return all
}
