//go:build unix

package machine

import (
	"syscall"
	"time"
)

// CanMeasureTime says whether ProcessorTime works on this system.
const CanMeasureTime = true

// ProcessorTime returns the sum of the user time and the system time of this process so far.
func ProcessorTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
