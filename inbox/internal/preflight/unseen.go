package preflight

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/eventtype"
)

// unseenPatience is how long TellUnseen waits for the broker at most.
const unseenPatience = 5 * time.Second

// TellUnseen compares the types that a handler asks for with its stream. It logs a note if the
// stream has events, but none of these types. Such a handler looks healthy and does nothing.
// TellUnseen logs a warning only if a type is probably misspelt, because a handler may be deployed
// before the producers of its events. It runs at the same time as the handlers, which do not wait
// for it.
func (in *Inbox) TellUnseen(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, unseenPatience)
	defer cancel()
	for _, h := range in.Handlers {
		if h.Stream == "" || len(h.Types) == 0 {
			continue
		}
		subjects, complete, err := in.subjectsOf(ctx, h.Stream)
		if err != nil {
			if ctx.Err() == nil {
				h.Log.InfoContext(ctx, "cannot compare the handler's types with its stream", "error", err)
			}
			continue
		}
		verdict, where := eventtype.Examine(h.Types, subjects, complete), "in stream "+h.Stream
		for _, text := range verdict.Warnings(where) {
			h.Log.WarnContext(ctx, "handler asks for types that its stream does not have", "what", text, "do", eventtype.Do)
		}
		if note := verdict.Note(where); note != "" {
			h.Log.InfoContext(ctx, "the handler waits for its first event", "what", note)
		}
	}
}

func (in *Inbox) subjectsOf(ctx context.Context, name string) (subjects []string, complete bool, err error) {
	js, err := jetstream.New(in.Conn)
	if err != nil {
		return nil, false, err
	}
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return nil, false, err
	}
	return eventtype.InStream(ctx, stream)
}
