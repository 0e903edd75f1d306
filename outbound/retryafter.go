package outbound

import (
	"net/http"
	"strings"
	"time"
)

// longestRetryAfter is the longest Retry-After that counts. Longer delays are shortened to it.
const longestRetryAfter = 24 * time.Hour

// ParseRetryAfter returns the delay that a response's Retry-After header asks for, and whether it
// asks for one. The header is a number of seconds or a date. ParseRetryAfter compares a date with
// the response's Date header, so that the clocks need not agree. If there is no valid Date header,
// it compares the date with now. A date in the past means no delay. A value that is invalid,
// negative, fractional or given twice is ignored. A delay of more than a day counts as a day.
func ParseRetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	values := h.Values("Retry-After")
	if len(values) != 1 {
		return 0, false
	}
	text := strings.Trim(values[0], " \t")
	if seconds, ok := parseSeconds(text); ok {
		return seconds, true
	}
	date, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	if sent, err := http.ParseTime(h.Get("Date")); err == nil {
		now = sent
	}
	return min(max(date.Sub(now), 0), longestRetryAfter), true
}

// parseSeconds parses a number that consists only of digits.
func parseSeconds(text string) (time.Duration, bool) {
	if text == "" {
		return 0, false
	}
	var d time.Duration
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
		d = min(d*10+time.Duration(c-'0')*time.Second, longestRetryAfter)
	}
	return d, true
}
