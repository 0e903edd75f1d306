package inbox_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/postroom/postroom/inbox"
)

// messages returns the directory in which the broker keeps the stream's messages.
// Beside it is what it keeps of consumers.
func (v *brittle) messages() string {
	return filepath.Join(v.server.Dir(), "$G", "streams", v.stream, "msgs")
}

// The broker forgets messages that an unordered handler had from it, and not that it
// delivered them: what takes their places reaches the handler nevertheless, while it
// reads, and where it is started later.
func TestAConsumerThatIsAheadOfItsStream(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		away bool // the handler, while others write where messages were lost
		more int  // of these
	}{{false, 5}, {false, 15}, {true, 5}} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			t.Parallel()
			v := newBrittle(t)
			v.in.Handle(v.subscription("h"), effect("h"))
			stop := v.run()
			kept, lost, more := ids("kept", 10), ids("lost", 10), ids("more", tt.more)
			v.publish(kept...)
			v.eventually("the first effects", func() bool { return len(v.effects("h")) == 10 })
			saved := filepath.Join(t.TempDir(), "saved")
			v.stopped(func() error { return os.CopyFS(saved, os.DirFS(v.messages())) })
			v.publish(lost...)
			v.eventually("the effects of what is lost then", func() bool { return len(v.effects("h")) == 20 })
			v.drained()
			if tt.away {
				stop()
			}
			v.stopped(func() error {
				return errors.Join(os.RemoveAll(v.messages()), os.CopyFS(v.messages(), os.DirFS(saved)))
			})
			v.publish(more...)
			if tt.away {
				v.in = inbox.New(v.pool, v.nc, v.config())
				v.in.Handle(v.subscription("h"), effect("h"))
				v.run()
			}
			v.eventually("the effects of what took their places", func() bool { return len(v.effects("h")) == 20+tt.more })
			v.wantOnce("h", slices.Concat(kept, lost, more)...)
		})
	}
}
