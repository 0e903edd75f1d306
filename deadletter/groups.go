package deadletter

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
)

const (
	// maxGroups is the largest number of groups that Groups returns.
	maxGroups = 200

	// Groups counts at most maxCauses causes and countedInGroups events. It reads the types and
	// keys of at most sampledInGroups of these events.
	maxCauses       = 5000
	countedInGroups = 1_000_000
	sampledInGroups = 20_000

	// If the filter has conditions on columns that the index of causes lacks, Groups reads at most
	// foundInGroups events. Without such conditions, this is the limit for events without a cause.
	foundInGroups = 50_000
)

// groupCounter collects groups.
type groupCounter struct {
	reader

	filter Filter
	groups []Group
	more   bool
}

// byCause adds the group of each cause, from the index of causes.
func (g *groupCounter) byCause(ctx context.Context) error {
	args := g.filter.arguments()                                                                                                                  // args has the mode, ids, handler, type, key, class, cause, source, event, text, since, until
	rows, _ := g.db.Query(ctx, g.sql.Groups, args[0], args[2], args[5], args[6], args[10], args[11], maxCauses, countedInGroups, sampledInGroups) // ForEachRow reports the error
	var one Group
	var text *string
	var more bool
	_, err := pgx.ForEachRow(rows, []any{
		&one.Cause, &one.Handler, &one.Class, &one.Events, &one.More, &one.FirstDeadAt, &one.LastDeadAt, &one.ExampleID, &one.Types, &one.Keys, &text, &more,
	}, func() error {
		g.add(one, text)
		g.more = g.more || more || one.More
		return nil
	})
	return err
}

// find adds the groups of the events that match. If withoutCause is true, it adds only groups of
// events that have no cause.
func (g *groupCounter) find(ctx context.Context, withoutCause bool) error {
	most := min(g.filter.bound(), foundInGroups)
	rows, _ := g.db.Query(ctx, g.sql.GroupsFound, g.filter.arguments(most, withoutCause)...) // ForEachRow reports the error
	var one Group
	var cause, handler, class, text *string
	looked, before := int64(0), len(g.groups)
	_, err := pgx.ForEachRow(rows, []any{
		&cause, &handler, &class, &one.Events, &one.FirstDeadAt, &one.LastDeadAt, &one.ExampleID, &one.Types, &one.Keys, &text,
	}, func() error {
		looked += one.Events
		if handler != nil {
			one.Cause, one.Handler, one.Class = value(cause), *handler, value(class)
			g.add(one, text)
		}
		return nil
	})
	if looked >= int64(most) {
		g.more = true
		//guard:a-group-that-was-not-counted-to-the-end-says-so remove
		g.bounded(before)
	}
	return err
}

// bounded records that there may be more events of the groups that were added after the first ones.
func (g *groupCounter) bounded(first int) {
	for n := range g.groups[first:] {
		g.groups[first+n].More = true
	}
}

func (g *groupCounter) add(one Group, text *string) {
	one.Error = value(text)
	one.Types = slices.Clone(one.Types)
	g.groups = append(g.groups, one)
}

// list returns the largest groups.
func (g *groupCounter) list() GroupList {
	slices.SortFunc(g.groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Events, a.Events), b.LastDeadAt.Compare(a.LastDeadAt), cmp.Compare(a.Cause, b.Cause))
	})
	return GroupList{Groups: g.groups[:min(len(g.groups), maxGroups)], All: len(g.groups), More: g.more}
}
