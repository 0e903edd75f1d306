package preflight

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/postroom/postroom"
)

// checkHandlers calls the methods Check and CheckSubscription of each handler that has these
// methods. If a handler has a method Types, its subscriptions together must have all types that
// Types returns. If a type is missing, checkHandlers returns an error, because the handler would
// wait for ever for events of that type.
func checkHandlers(ctx context.Context, all []Handler) error {
	var faults []error
	for i, h := range all {
		//guard:a-handler-refuses-a-subscription false
		if c, ok := h.Runs.(subscriptionChecker); ok {
			if err := c.CheckSubscription(h.Types, h.Order); err != nil {
				faults = append(faults, postroom.Unrecoverable(fmt.Errorf("handler %s: %w", h.Name, err)))
			}
		}
		if h.Runs == nil || slices.ContainsFunc(all[:i], h.runsTheSame) {
			continue // the handler is a function, or was checked already
		}
		//guard:a-saga-gets-its-types false
		if missing := h.missingTypes(all); len(missing) > 0 {
			faults = append(faults, postroom.Unrecoverable(fmt.Errorf("handler %s: it handles %s, which Types of its subscription lacks (if you leave them empty, give the handler all its types before you call Handle)", h.Name, strings.Join(missing, ", "))))
		}
		if c, ok := h.Runs.(interface{ Check(context.Context) error }); ok {
			if err := c.Check(ctx); err != nil {
				faults = append(faults, fmt.Errorf("handler %s: %w", h.Name, err))
			}
		}
	}
	return errors.Join(faults...)
}

// subscriptionChecker is a handler that refuses a subscription with which it cannot work, such as a
// saga.
type subscriptionChecker interface {
	CheckSubscription(types []string, order string) error
}

// runsTheSame reports whether two subscriptions have the same handler. It compares only handlers
// that are pointers, and returns false for all others.
func (h Handler) runsTheSame(other Handler) bool {
	a, b := reflect.ValueOf(h.Runs), reflect.ValueOf(other.Runs)
	return a.Kind() == reflect.Pointer && b.Kind() == reflect.Pointer && h.Runs == other.Runs
}

// missingTypes returns the types of a handler that none of its subscriptions has. If a subscription
// has Subjects, it may get any type, and missingTypes returns no type.
func (h Handler) missingTypes(all []Handler) (missing []string) {
	typed, ok := h.Runs.(postroom.TypedHandler)
	if !ok {
		return nil
	}
	var types []string
	for _, other := range all {
		if other.Name != h.Name && !h.runsTheSame(other) {
			continue
		}
		if len(other.Types) == 0 {
			return nil
		}
		types = append(types, other.Types...)
	}
	for _, t := range typed.Types() {
		if !slices.Contains(types, t) {
			missing = append(missing, t)
		}
	}
	return missing
}
