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

// typesPatience limits the time of all requests to the broker about types.
const typesPatience = 2 * time.Second

// usedSubject is a subject of an event in this database.
type usedSubject struct {
	name     string
	outgoing bool // the log has an event with it
}

// readTypes returns the subjects of a few thousand events in this database.
func readTypes(m *view) ([]usedSubject, error) {
	return rows(m, "types in use", schema.In(m.schema, eventtype.UsedSQL), func(row pgx.CollectableRow, s *usedSubject) error { return row.Scan(&s.name, &s.outgoing) })
}

// namesOf returns the subjects, or only those of the log.
func namesOf(used []usedSubject, onlyOutgoing bool) (names []string) {
	for _, s := range used {
		if s.outgoing || !onlyOutgoing {
			names = append(names, s.name)
		}
	}
	return names
}

// streamTypes are the types of a stream's events.
type streamTypes struct {
	subjects []string
	complete bool // the field subjects has all types of the stream
	accepts  []string
}

// types asks the broker which types the events in streams have. It leaves out a stream that it
// cannot look up. If it cannot list the subjects of a stream, it sets b.Fault and stops.
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
			continue // the handler's view reports this fault
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

// checkTypes finds types that handlers ask for and that are probably misspelt, and handlers that are
// subscribed for a day and whose stream has only events that they do not read. It also returns a
// note about each new handler for whose types no event is known, if all types of the handler's
// stream are known. The parameter seen has the subjects in the database.
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
		//guard:a-new-handler-may-wait 1 true
		if sub.isOld && in.complete && len(verdict.Typos) == 0 && !slices.ContainsFunc(in.subjects, sub.takes) {
			l.add(FoundNoMatch, sub.Handler, fmt.Sprintf("%s is subscribed for more than a day, and stream %s has no event for it, but has others: %s", sub.Handler, sub.Stream, eventtype.Some(in.subjects)), eventtype.Do)
			continue
		}
		if note := verdict.Note(where); note != "" {
			notes = append(notes, fmt.Sprintf("%s: %s", sub.Handler, note))
		}
	}
	return notes
}

// unhandledNotes returns a note for each stream with types that no handler of this database reads.
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
			notes = append(notes, fmt.Sprintf("no handler of this database reads %s of stream %s; handlers of other databases may", eventtype.Some(untaken), name))
		}
	}
	return notes
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
