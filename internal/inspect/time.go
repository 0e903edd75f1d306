package inspect

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// timeScanner scans a time as UTC. NULL, infinity and times outside the years 1 to 9999 become
// zero, because JSON cannot represent them.
type timeScanner struct{ to *time.Time }

func at(to *time.Time) *timeScanner { return &timeScanner{to} }

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (i *timeScanner) ScanTimestamptz(v pgtype.Timestamptz) error {
	*i.to = time.Time{}
	if v.Valid && v.InfinityModifier == pgtype.Finite {
		*i.to = utc(v.Time)
	}
	return nil
}

// utc returns a time in UTC. If JSON cannot represent the time, utc returns zero.
func utc(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}
