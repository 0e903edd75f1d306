package inbox

import (
	"context"
	"fmt"
	"slices"

	"github.com/postroom/postroom"
)

// checkIsolation refuses to run an ordered handler, or what it holds, where statements
// would not see what was committed while they waited for a key.
func (in *Inbox) checkIsolation(ctx context.Context) error {
	if !slices.ContainsFunc(in.loops, (*loop).isOrdered) {
		return nil
	}
	isolation, err := in.db.Isolation(ctx)
	if err != nil {
		return err
	}
	if isolation != "read committed" {
		return postroom.Refuse(fmt.Errorf("%w: it is %s; set it for the role of this process", ErrIsolation, isolation))
	}
	return nil
}
