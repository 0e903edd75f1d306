//go:build !linux

package rig

import "errors"

// used is for Linux, the only system whose disks are filled here.
func used(string) (int64, error) { return 0, errors.ErrUnsupported }
