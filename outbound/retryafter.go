package outbound

import (
	"net/http"
	"strings"
	"time"
)

// longestRetryAfter is what an absurdly long Retry-After counts as.
const longestRetryAfter = 24 * time.Hour

// ParseRetryAfter returns the delay that a response's Retry-After header asks for,
// and whether it asks for one: a number of seconds, or a date. A date is compared
// with the response's own Date if it has one, so that clocks need not agree, else
// with now; one in the past is no delay. What is neither, negative, fractional or
// given twice is ignored. A delay of more than a day counts as a day.
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

// parseSeconds reads digits, and nothing else: no sign, no fraction.
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
