// Package outage shows what an outage of a vendor does to handlers that call the vendor: nothing
// dies, each event takes effect once, and each process asks the vendor once a second at the most.
// The outage is short, unless a variable says how long it lasts:
//
//	POSTROOM_OUTAGE=10m go test -count=1 -timeout 1h -v ./integration/outage
package outage
