package relay

import "time"

const (
	// If more than manyEvents come in a second, the relay waits between two reads, even if Wake is
	// called. The reason is that a read costs the database, the relay and the broker as much work
	// as many events, and slows the producers. The wait is lingerShare times as long as a read
	// takes, but at least minLinger and at most maxLinger. So the wait is longer on a busy machine.
	manyEvents  = 1500
	lingerShare = 25
	minLinger   = 4 * time.Millisecond
	maxLinger   = 25 * time.Millisecond
)

// pace measures the rate of new events, and the time that a read takes.
type pace struct {
	last time.Time
	rate float64       // events a second, averaged over the last reads
	took time.Duration // time of a read with events, averaged over the last such reads
}

// addPass adds a read that found n events, and returns the shortest wait before the next read.
func (p *pace) addPass(n int, took time.Duration, now time.Time) time.Duration {
	since := now.Sub(p.last)
	p.last = now
	if n > 0 {
		p.took += (took - p.took) / 8
	}
	if since <= 0 || since > time.Second {
		p.rate = 0
		return 0
	}
	share := min(1, since.Seconds()/0.05) // so that the field rate is an average over about 50 ms
	p.rate += share * (float64(n)/since.Seconds() - p.rate)
	if p.rate < manyEvents {
		return 0
	}
	return min(max(minLinger, lingerShare*p.took), maxLinger)
}
