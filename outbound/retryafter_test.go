package outbound_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/postroom/postroom/outbound"
)

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name   string
		values []string
		date   string
		want   time.Duration
		ok     bool
	}{
		{"seconds", []string{"120"}, "", 2 * time.Minute, true},
		{"none", []string{"0"}, "", 0, true},
		{"leading zeros", []string{"007"}, "", 7 * time.Second, true},
		{"blanks around", []string{" 5 "}, "", 5 * time.Second, true},
		{"a date long past", []string{"Fri, 31 Dec 1999 23:59:59 GMT"}, "", 0, true},
		{"a date to come", []string{"Fri, 20 Nov 2026 12:00:30 GMT"}, "", 30 * time.Second, true},
		{"a date of RFC 850", []string{"Friday, 20-Nov-26 12:00:30 GMT"}, "", 30 * time.Second, true},
		{"a date of asctime", []string{"Fri Nov 20 12:00:30 2026"}, "", 30 * time.Second, true},
		{"a date by the vendor's clock", []string{"Fri, 20 Nov 2026 13:00:30 GMT"}, "Fri, 20 Nov 2026 13:00:00 GMT", 30 * time.Second, true},
		{"a date beside a Date that is none", []string{"Fri, 20 Nov 2026 12:00:30 GMT"}, "noon", 30 * time.Second, true},
		{"absurdly many seconds", []string{"99999999999999999999999999"}, "", 24 * time.Hour, true},
		{"an absurdly late date", []string{"Fri, 20 Nov 2099 12:00:30 GMT"}, "", 24 * time.Hour, true},
		{"negative", []string{"-1"}, "", 0, false},
		{"signed", []string{"+1"}, "", 0, false},
		{"a fraction", []string{"1.5"}, "", 0, false},
		{"an exponent", []string{"1e3"}, "", 0, false},
		{"empty", []string{""}, "", 0, false},
		{"a word", []string{"soon"}, "", 0, false},
		{"two", []string{"1", "2"}, "", 0, false},
		{"two in one", []string{"1, 2"}, "", 0, false},
		{"absent", nil, "", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{}
			for _, v := range tt.values {
				h.Add("Retry-After", v)
			}
			if tt.date != "" {
				h.Set("Date", tt.date)
			}
			got, ok := outbound.ParseRetryAfter(h, now)
			if got != tt.want || ok != tt.ok {
				t.Errorf("ParseRetryAfter = %s, %v, want %s, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, seed := range []string{"120", "-1", "1.5", "Fri, 31 Dec 1999 23:59:59 GMT", "99999999999999999999", "", " 1\t", "١"} {
		f.Add(seed, "Fri, 20 Nov 2026 12:00:00 GMT")
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		h := http.Header{"Retry-After": {value}, "Date": {date}}
		d, ok := outbound.ParseRetryAfter(h, time.Unix(1_800_000_000, 0))
		if d < 0 || d > 24*time.Hour || !ok && d != 0 {
			t.Errorf("ParseRetryAfter of %q at %q = %s, %v", value, date, d, ok)
		}
	})
}
