package inspect

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/wildcard"
)

// A subscription is a row of the table postroom.subscription.
type subscription struct {
	Handler, Stream string
	Created         time.Time // when the stream was created
	Types, Subjects []string
	AckFloor        int64
	AckFloorAt      time.Time
	Ordered         bool
	Reader          string
	ReaderUntil     time.Time
	HasReader       bool
	Epoch           int64
	Takeovers       int64
	instance        string
	isOld           bool // the handler is subscribed for more than a day
}

func readSubscriptions(m *view) ([]subscription, error) {
	return rows(m, "subscriptions", m.sql.Subscriptions, func(row pgx.CollectableRow, s *subscription) error {
		return row.Scan(&s.Handler, &s.Stream, at(&s.Created), &s.Types, &s.Subjects, &s.AckFloor, at(&s.AckFloorAt), &s.Ordered,
			&s.Reader, at(&s.ReaderUntil), &s.HasReader, &s.Epoch, &s.Takeovers, &s.instance, &s.isOld)
	})
}

// takes reports whether the handler gets events that are published to a subject.
func (s *subscription) takes(subject string) bool {
	return len(wildcard.Uncovered([]string{subject}, s.Subjects)) == 0
}
