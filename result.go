package postroom

import (
	"context"

	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/result"
)

// MaxResult is how many bytes of a [Result] are stored. An ellipsis follows if there were more.
const MaxResult = 300

// Result stores a short text with the event that is being handled, for people who ask later
// what was done: "charge ch_123". Call it in a handler with the handler's context; the last
// call counts. The text is stored if the handler succeeds, in the transaction of its effects,
// and is removed with the event's row of inbox. 'postroom events show' prints it. Do not put
// secrets into it. Without a handler's context Result does nothing. It may be called
// concurrently.
func Result(ctx context.Context, text string) { result.Set(ctx, guard.Clean(text, MaxResult)) }
