package postroom

import (
	"context"

	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/result"
)

// MaxResult is the most bytes of a [Result] that are stored. If the text is longer, it is cut
// and an ellipsis follows.
const MaxResult = 300

// Result stores a short text with the event that is being handled, such as "charge ch_123",
// so that people can see later what was done. Call it in a handler with the handler's
// context. The last call counts. If the handler succeeds, the text is stored in the
// transaction of its effects. It is removed with the event's row of inbox. 'postroom events
// show' prints it. Do not put secrets into it. Without a handler's context Result does
// nothing. It may be called concurrently.
func Result(ctx context.Context, text string) { result.Set(ctx, guard.Clean(text, MaxResult)) }
