package consumer

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/wildcard"
)

// leastThreshold is the lowest useful inactive threshold (the time without a request after which
// the broker removes a consumer). With less, a consumer may not last between two requests.
const leastThreshold = time.Second

// Threshold returns the inactive threshold for a consumer of a stream: the lower one of the
// stream's limit and the parameter wish. If one of them is 0 (no limit, or no wish), Threshold
// returns the other one.
func Threshold(stream jetstream.StreamConfig, wish time.Duration) time.Duration {
	if most := stream.ConsumerLimits.InactiveThreshold; most > 0 && (wish == 0 || wish > most) {
		return most
	}
	return wish
}

// ExamineLimits returns an error for each setting of the stream with which a handler of these
// subjects cannot work. Each error says what to change. ExamineLimits does no I/O.
func ExamineLimits(stream jetstream.StreamConfig, ordered bool, subjects []string) []error {
	var faults []error
	refuse := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	switch most := stream.ConsumerLimits.InactiveThreshold; {
	case most <= 0:
	case most < leastThreshold:
		refuse("it removes a consumer that asks for nothing for %s (consumer_limits.inactive_threshold): set that to %s or more, or to 0", most, leastThreshold)
	//guard:a-consumer-that-is-removed-with-its-events-is-told false
	case !ordered && stream.Retention != jetstream.LimitsPolicy:
		refuse("it removes the handler's consumer if no process of the handler runs for %s (consumer_limits.inactive_threshold), and also the events that it keeps for the consumer: "+
			"set consumer_limits.inactive_threshold to 0, or give it limits retention", most)
	}
	for _, subject := range subjects {
		if to := movedBy(stream.SubjectTransform, subject); to != "" {
			refuse("it stores messages of %s under %s (subject_transform), which the handler does not read: set Subjects to the subject under which they are stored, or remove the transform", subject, to)
		}
	}
	return faults
}

// movedBy returns the destination of the transform t if t moves every message of the subject to
// another subject. Otherwise it returns an empty string.
func movedBy(t *jetstream.SubjectTransformConfig, subject string) string {
	if t == nil || t.Source != "" && !wildcard.Covers(t.Source, subject) {
		return ""
	}
	stored, wanted := strings.Split(t.Destination, "."), strings.Split(subject, ".")
	for i, token := range stored {
		switch {
		case token == ">" || i < len(wanted) && wanted[i] == ">":
			return ""
		case i >= len(wanted):
			return t.Destination
		case wanted[i] == "*" || token == "*" || strings.Contains(token, "{{") || strings.HasPrefix(token, "$"):
			continue
		//guard:a-handler-that-looks-at-nothing-is-told false
		case token != wanted[i]:
			return t.Destination
		}
	}
	if len(stored) < len(wanted) {
		return t.Destination
	}
	return ""
}
