//go:build unix

package measure

import (
	"syscall"
	"time"
)

const canMeasureCPU = true

// processorTime returns the user and system time of this process so far.
func processorTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
