//go:build !linux

package rig

import "errors"

// used works only on Linux, the only system on which disks are filled.
func used(string) (int64, error) { return 0, errors.ErrUnsupported }
