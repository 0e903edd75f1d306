// Package result passes a text from postroom.SetResult to the inbox. A handler calls
// postroom.SetResult, and the inbox stores the text with the event.
package result

import (
	"context"
	"sync"
)

// Text has the last text that a handler set. It is safe for concurrent use.
type Text struct {
	mu   sync.Mutex
	text string
}

// String returns the text.
func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text
}

// key is the key of a *Text in a context.
type key struct{}

// With returns a context with a new Text, and this Text. If a handler calls [Set] with the context,
// Set changes the Text.
func With(ctx context.Context) (context.Context, *Text) {
	t := new(Text)
	return context.WithValue(ctx, key{}, t), t
}

// Set sets the text of a context. If the context has no Text, Set does nothing.
func Set(ctx context.Context, text string) {
	if t, ok := ctx.Value(key{}).(*Text); ok {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.text = text
	}
}
