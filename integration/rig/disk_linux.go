package rig

import (
	"fmt"
	"syscall"
)

// used returns how many bytes of a file system are in use.
func used(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("look at the disk: %w", err)
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize, nil //nolint:gosec // the number is far below the limit
}
