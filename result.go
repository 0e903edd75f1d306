package postroom

import (
	"context"

	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/result"
)

// maxResult is how many bytes of a result are stored at most.
const maxResult = 300

// SetResult stores a short text, such as "charge ch_123", with the event that is being handled.
// People can see later what the handler did: 'postroom events show' prints the text. At most 300
// bytes are stored; an ellipsis follows a text that was cut. Call SetResult in a handler with the
// handler's context. The last call counts. If the handler succeeds, the text is stored in the
// transaction of its effects. The inbox removes the text together with the event's row of the table
// inbox. Do not put secrets into the text. If ctx is not the context of a handler, SetResult does
// nothing. It may be called concurrently.
func SetResult(ctx context.Context, text string) { result.Set(ctx, guard.Clean(text, maxResult)) }
