package inspect

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// instant scans a time, into UTC: NULL and infinity stay zero.
type instant struct{ to *time.Time }

func at(to *time.Time) *instant { return &instant{to} }

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (i *instant) ScanTimestamptz(v pgtype.Timestamptz) error {
	*i.to = time.Time{}
	if v.Valid && v.InfinityModifier == pgtype.Finite {
		*i.to = v.Time.UTC()
	}
	return nil
}
