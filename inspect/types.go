package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/eventtype"
	"github.com/postroom/postroom/internal/wildcard"
	"github.com/postroom/postroom/schema"
)

// typesPatience bounds what is asked of the broker about types.
const typesPatience = 2 * time.Second

// readTypes returns the subjects of events that this database shows, of which it looks at
// some thousands.
func readTypes(m *snapshot) ([]string, error) {
	return rows(m, "types in use", schema.In(m.schema, eventtype.UsedSQL), func(row pgx.CollectableRow, s *string) error { return row.Scan(s) })
}

// streamTypes is what a stream has events of.
type streamTypes struct {
	subjects []string
	complete bool // an event of each type that is written would be among them
	accepts  []string
}

// types asks the broker of which types streams have events. What cannot be told is left
// out: the types are not what keeps events from their handlers.
func (o brokerClient) types(ctx context.Context, b *Broker, subs []subscription) map[string]streamTypes {
	all := map[string]streamTypes{}
	if o.nc == nil || b.Fault != "" {
		return all
	}
	ctx, cancel := context.WithTimeout(ctx, typesPatience)
	defer cancel()
	js, err := o.jetStream()
	if err != nil {
		return all
	}
	for _, name := range streamsOf(subs) {
		stream, err := js.Stream(ctx, name)
		if err != nil {
			continue // view has told
		}
		t := streamTypes{accepts: stream.CachedInfo().Config.Subjects}
		if t.subjects, t.complete, err = eventtype.InStream(ctx, stream); err != nil {
			b.Fault = fmt.Sprintf("stream %s: %s", name, faultOf(err))
			return all
		}
		all[name] = t
	}
	return all
}

func streamsOf(subs []subscription) []string {
	var names []string
	for _, sub := range subs {
		names = append(names, sub.Stream)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkTypes finds types that a handler asks for and that are probably misspelt. It returns
// notes of handlers of whose types nobody has written any. seen are the subjects that the
// database shows.
func (l *findingList) checkTypes(subs []subscription, streams map[string]streamTypes, seen []string) []string {
	notes := []string{}
	for _, sub := range subs {
		in, asked := streams[sub.Stream]
		where := "in stream " + sub.Stream + ", or among the newest in this database"
		if !asked || !in.complete {
			where = "among the newest in this database"
		}
		verdict := eventtype.Examine(sub.Types, union(in.subjects, seen), in.complete)
		for _, text := range verdict.Warnings(where) {
			l.add(FoundUnknownType, sub.Handler, fmt.Sprintf("%s: %s", sub.Handler, text), eventtype.Do)
		}
		if note := verdict.Note(where); note != "" {
			notes = append(notes, fmt.Sprintf("%s: %s", sub.Handler, note))
		}
	}
	return notes
}

// unhandledNotes says of which types streams have events that no handler here takes.
func unhandledNotes(subs []subscription, streams map[string]streamTypes, seen []string) []string {
	var notes []string
	for _, name := range streamsOf(subs) {
		in, asked := streams[name]
		if !asked {
			continue
		}
		ours := slices.DeleteFunc(slices.Clone(seen), func(s string) bool { return len(wildcard.Uncovered([]string{s}, in.accepts)) > 0 })
		var taken []string
		for _, sub := range subs {
			if sub.Stream == name {
				taken = append(taken, sub.Subjects...)
			}
		}
		if untaken := wildcard.Uncovered(union(in.subjects, ours), taken); len(untaken) > 0 {
			notes = append(notes, fmt.Sprintf("no handler of this database takes %s of stream %s; handlers of others may", eventtype.Some(untaken), name))
		}
	}
	return notes
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
