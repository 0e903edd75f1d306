package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/postroom/postroom/internal/eventtype"
	"github.com/postroom/postroom/internal/wildcard"
)

// checkTypes looks for types that handlers ask for and that no producer writes. It also looks for
// types that are in a stream and that no handler reads.
func checkTypes(ctx context.Context, e *examination) error {
	used, err := e.loadSubjects(ctx)
	if err != nil {
		return err
	}
	var seen []string
	for _, u := range used {
		seen = append(seen, u.Subject)
	}
	had := len(e.findings)
	var faults []error
	err = e.each(ctx, func(s *stream) {
		if len(s.handlers) > 0 {
			faults = append(faults, compareTypes(ctx, e, s, seen))
		}
	})
	if err = errors.Join(append(faults, err)...); err == nil && len(e.findings) == had {
		e.ok("", "the types that handlers ask for match those of events")
	}
	return err
}

// compareTypes compares the types of a stream's events with the types that the handlers of the
// stream ask for. The parameter seen has the types of the newest events in the database.
func compareTypes(ctx context.Context, e *examination, s *stream, seen []string) error {
	within, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	subjects, complete, err := eventtype.InStream(within, s.handle)
	if err != nil {
		return fmt.Errorf("look up the types in use: %w", err)
	}
	where := "in stream " + s.name + ", or among the newest in this database"
	if !complete {
		where = "among the newest in this database"
	}
	all := slices.Concat(subjects, seen)
	var taken []string
	for _, sub := range s.handlers {
		taken = append(taken, sub.Subjects...)
		verdict := eventtype.Examine(sub.Types, all, complete)
		for _, text := range verdict.Warnings(where) {
			e.warn(sub.Handler, eventtype.Do, "%s", text)
		}
		if note := verdict.Note(where); note != "" {
			e.note(sub.Handler, "%s", note)
		}
	}
	all = slices.DeleteFunc(all, func(subject string) bool { return !s.takes(subject) && !slices.Contains(subjects, subject) })
	slices.Sort(all)
	if untaken := wildcard.Uncovered(slices.Compact(all), taken); len(untaken) > 0 {
		e.note(s.name, "no handler of this database reads %s; handlers of other databases may", eventtype.Some(untaken))
	}
	return nil
}
