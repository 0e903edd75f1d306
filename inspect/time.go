package inspect

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// timeScanner scans a time, into UTC: NULL and infinity stay zero, and so does what is
// outside the years 1 to 9999, which no JSON can have.
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

// utc returns a time in UTC, and zero for one that no JSON can have.
func utc(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}
