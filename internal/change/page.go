package change

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/postroom/postroom"
)

// The bounds of [postroom.Page.Limit].
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// Limit returns how many entries a page of a list has at most.
func Limit(p postroom.Page) (int, error) {
	if p.Limit < 0 || p.Limit > maxLimit {
		return 0, fmt.Errorf("%w: Limit is %d, want 1 to %d", postroom.ErrPage, p.Limit, maxLimit)
	}
	return cmp.Or(p.Limit, defaultLimit), nil
}

// Before returns the id behind which a page of a list begins that has the highest id first, or nil if
// it begins at the first entry.
func Before(p postroom.Page) (*int64, error) {
	if p.After == "" {
		return nil, nil
	}
	id, err := strconv.ParseInt(p.After, 10, 64)
	if err != nil || id < 1 {
		return nil, ErrPlace
	}
	return &id, nil
}

// ErrPlace says that [postroom.Page.After] is not what a list returned.
var ErrPlace = fmt.Errorf("%w: After is no place in this list: use what the list returned with its last page", postroom.ErrPage)

// Next returns the page of at most limit entries of a list that was read with one entry more, and where
// the next page begins.
func Next[T any](found []T, limit int, id func(T) int64) (page []T, next string) {
	if len(found) <= limit {
		return found, ""
	}
	return found[:limit], strconv.FormatInt(id(found[limit-1]), 10)
}
