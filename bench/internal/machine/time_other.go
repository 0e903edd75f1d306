//go:build !unix

package machine

import (
	"errors"
	"time"
)

// CanMeasureTime says whether ProcessorTime works on this system.
const CanMeasureTime = false

// ProcessorTime is not known here.
func ProcessorTime() (time.Duration, error) { return 0, errors.ErrUnsupported }
