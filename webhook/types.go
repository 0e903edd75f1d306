package webhook

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/wildcard"
)

// types returns the types of events that the receiver stores: those of the Config, or else those of
// the handler. They may have wildcards. There are none if it stores all types. The result where says
// whose types they are.
func (r *Receiver) types(intake *inbox.Intake) (types []string, where string) {
	if len(r.cfg.Types) > 0 || intake == nil {
		return r.cfg.Types, "field Types"
	}
	return intake.Types(), "field Types is empty, and the handler's Types"
}

// typeFaults returns an error for each type that no request can have, or that the handler does not
// take: the receiver would answer 200 and drop the events that are meant.
func (r *Receiver) typeFaults(intake *inbox.Intake) error {
	var faults []error
	types, where := r.types(intake)
	if name := schemeName(r.cfg.Scheme); name != "" && r.cfg.Choose == nil && r.cfg.Event == nil {
		for _, t := range types {
			//guard:webhook-types-begin-with-the-scheme false
			if !fits(name)(t) {
				faults = append(faults, fmt.Errorf("%s has %s, which no event of the scheme has: the types of its events begin with %q", where, t, prefixOf(name)))
			}
		}
	}
	if intake == nil {
		return errors.Join(faults...)
	}
	taken := intake.Types()
	for _, t := range r.cfg.Types {
		//guard:webhook-types-are-those-of-the-handler 2 false
		if len(taken) > 0 && !slices.ContainsFunc(taken, func(has string) bool { return wildcard.Covers(t, has) }) {
			faults = append(faults, fmt.Errorf("field Types has %s, which handler %s does not take", t, r.cfg.Handler))
		}
	}
	return errors.Join(faults...)
}

// schemeName returns the Message.Scheme of a scheme's messages, or "" if the scheme does not tell it.
func schemeName(s Scheme) string {
	if s, ok := s.(interface{ SchemeName() string }); ok {
		return s.SchemeName()
	}
	return ""
}

// prefixOf returns the text with which the types of a scheme's events begin.
func prefixOf(scheme string) string {
	return strings.TrimSuffix(eventType(Message{Scheme: scheme}), untyped)
}

// fits returns a function that reports whether an event of a scheme can have a type. The type may
// have wildcards.
func fits(scheme string) func(pattern string) bool {
	begin := strings.Split(strings.TrimSuffix(prefixOf(scheme), "."), ".")
	return func(pattern string) bool {
		parts := strings.Split(pattern, ".")
		for i, part := range begin {
			switch {
			case i == len(parts)-1 && parts[i] == ">":
				return true
			case i >= len(parts) || parts[i] != "*" && parts[i] != part:
				return false
			}
		}
		return len(parts) > len(begin)
	}
}
