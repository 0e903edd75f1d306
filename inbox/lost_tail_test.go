package inbox_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// messages returns the directory in which the broker keeps the stream's messages. Its data of
// consumers is beside it.
func (v *brittle) messages() string {
	v.Helper()
	dirs, err := filepath.Glob(filepath.Join(v.server.Dir(), "*", "streams", v.stream, "msgs"))
	if err != nil || len(dirs) != 1 {
		v.Fatalf("the stream's messages are in %v, %v", dirs, err)
	}
	return dirs[0]
}

// The broker loses messages that it had delivered to an unordered handler, and remembers the
// deliveries. The messages that take their places reach the handler nevertheless, whether it
// is running or starts later.
func TestHandlerGetsMessagesBehindALostTail(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		away bool // the handler is away while others write in the place of lost messages
		more int  // how many messages the others write
	}{{false, 5}, {false, 15}, {true, 5}} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			t.Parallel()
			v := newBrittle(t)
			v.in.Handle(v.subscription("h"), effect("h"))
			stop := v.run()
			kept, lost, more := ids("kept", 10), ids("lost", 10), ids("more", tt.more)
			v.publish(kept...)
			v.eventually("the first effects", func() bool { return len(v.effects("h")) == 10 })
			saved, messages := filepath.Join(t.TempDir(), "saved"), v.messages()
			v.stopped(func() error { return os.CopyFS(saved, os.DirFS(messages)) })
			v.publish(lost...)
			v.eventually("the effects of the events that the broker will lose", func() bool { return len(v.effects("h")) == 20 })
			v.drained()
			if tt.away {
				stop()
			}
			v.stopped(func() error {
				return errors.Join(os.RemoveAll(messages), os.CopyFS(messages, os.DirFS(saved)))
			})
			v.publish(more...)
			if tt.away {
				v.in = inbox.New(v.pool, v.nc, v.config())
				v.in.Handle(v.subscription("h"), effect("h"))
				v.run()
			}
			v.eventually("the effects of the messages in place of the lost ones", func() bool { return len(v.effects("h")) == 20+tt.more })
			v.wantOnce("h", slices.Concat(kept, lost, more)...)
		})
	}
}

// If the broker's user may not read single messages, the handler cannot always tell whether
// any were lost. The inbox says so, and the handler goes on.
func TestHandlerGoesOnIfItMayNotReadMessages(t *testing.T) {
	t.Parallel()
	server, connect := twoUsers(t, `["$JS.API.STREAM.MSG.GET.>", "$JS.API.DIRECT.GET.>"]`)
	b := &brittle{bench: newBenchOn(t, devtest.Pool(t), connect("all")), server: server}
	var log told
	cfg := b.config()
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	b.in = inbox.New(b.pool, connect("some"), cfg)
	b.in.Handle(b.subscription("h"), effect("h"))
	b.publish("before")
	b.run()
	b.eventually("the effect", func() bool { return len(b.effects("h")) == 1 })
	saved, messages := filepath.Join(t.TempDir(), "saved"), b.messages()
	b.stopped(func() error { return os.CopyFS(saved, os.DirFS(messages)) })
	b.publish("lost 1", "lost 2")
	b.eventually("the effects of the events that the broker will lose", func() bool { return len(b.effects("h")) == 3 })
	b.stopped(func() error {
		return errors.Join(os.RemoveAll(messages), os.CopyFS(messages, os.DirFS(saved)))
	})
	b.publish("after")
	b.eventually("the effect of the message in place of the lost ones", func() bool { return len(b.effects("h")) == 4 })
	b.wantOnce("h", "before", "lost 1", "lost 2", "after")
	if !strings.Contains(log.String(), "grant $JS.API.STREAM.MSG.GET.*") {
		t.Errorf("the log does not name the missing right: %s", log.String())
	}
}
