//go:build !unix

package measure

import (
	"errors"
	"time"
)

const canMeasureCPU = false

func processorTime() (time.Duration, error) { return 0, errors.ErrUnsupported }
