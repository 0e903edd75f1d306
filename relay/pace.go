package relay

import "time"

const (
	// Where events come faster than this, in a second, passes are apart, whoever calls
	// Wake: a pass costs the database, the relay and the broker as much as many events
	// do, and takes it from the producers. The wait is so many times as long as a pass
	// takes, which is long where the machine is busy.
	manyEvents  = 1500
	lingerShare = 25
	minLinger   = 4 * time.Millisecond
	maxLinger   = 25 * time.Millisecond
)

// pace finds out how fast events come, and how long a pass takes.
type pace struct {
	last time.Time
	rate float64       // events a second, over the last passes
	took time.Duration // a pass with news, over the last ones
}

// addPass notes a pass that found n events and took so long, and returns how long the
// next has to wait in any case.
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
	share := min(1, since.Seconds()/0.05) // over about 50 ms
	p.rate += share * (float64(n)/since.Seconds() - p.rate)
	if p.rate < manyEvents {
		return 0
	}
	return min(max(minLinger, lingerShare*p.took), maxLinger)
}
