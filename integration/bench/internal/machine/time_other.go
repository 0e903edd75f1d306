//go:build !unix

package machine

import (
	"errors"
	"time"
)

// CanMeasureTime says whether ProcessorTime works on this system.
const CanMeasureTime = false

// ProcessorTime returns an error, because this system does not report the processor time.
func ProcessorTime() (time.Duration, error) { return 0, errors.ErrUnsupported }
