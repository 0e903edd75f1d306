//go:build !linux

package rig

import "errors"

// used is not supported here: the rig fills disks only on Linux.
func used(string) (int64, error) { return 0, errors.ErrUnsupported }
