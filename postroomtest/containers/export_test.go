package containers

import (
	"context"

	"github.com/postroom/postroom/internal/devstack"
)

const (
	HostLabel = hostLabel
	PIDLabel  = pidLabel
)

// DefaultImages returns the default images, by the environment variable that replaces each.
func DefaultImages() map[string]string {
	all := make(map[string]string)
	for _, is := range images {
		all[is.variable] = is.image
	}
	return all
}

// RemoveLeftOvers removes the containers of processes that have ended.
func RemoveLeftOvers(ctx context.Context) error {
	d, err := connect(ctx)
	if err != nil {
		return err
	}
	return d.remove(ctx, func(pid int) bool { return !devstack.ProcessLives(pid) })
}
