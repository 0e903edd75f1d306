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

// checkHandlers asks handlers that have a method Check whether they could work. It refuses a
// handler that knows the types of its events, by a method Types, and does not get one of them: it
// would wait for that for ever. Several subscriptions of one handler get the types together.
func checkHandlers(ctx context.Context, all []Handler) error {
	var faults []error
	for i, h := range all {
		if h.Runs == nil || slices.ContainsFunc(all[:i], h.runsTheSame) {
			continue // a function, or asked already
		}
		if missing := h.missingTypes(all); len(missing) > 0 {
			faults = append(faults, postroom.Unrecoverable(fmt.Errorf("handler %s: it handles %s, which Types of its subscription lacks", h.Name, strings.Join(missing, ", "))))
		}
		if c, ok := h.Runs.(interface{ Check(context.Context) error }); ok {
			if err := c.Check(ctx); err != nil {
				faults = append(faults, fmt.Errorf("handler %s: %w", h.Name, err))
			}
		}
	}
	return errors.Join(faults...)
}

// runsTheSame reports whether two subscriptions have the same handler, which only a pointer tells.
func (h Handler) runsTheSame(other Handler) bool {
	a, b := reflect.ValueOf(h.Runs), reflect.ValueOf(other.Runs)
	return a.Kind() == reflect.Pointer && b.Kind() == reflect.Pointer && h.Runs == other.Runs
}

// missingTypes returns the types that a handler knows and that none of its subscriptions has. A
// subscription by subjects may get any type.
func (h Handler) missingTypes(all []Handler) (missing []string) {
	typed, ok := h.Runs.(interface{ Types() []string })
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
