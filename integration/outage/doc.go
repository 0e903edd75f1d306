// Package outage tests handlers that call a vendor, during an outage of the vendor. No event may
// die, and each event must take effect once. After the first calls fail, each handler may call the
// vendor at most once a second in each process. The outage is short. A variable makes it longer:
//
//	POSTROOM_OUTAGE=10m go test -count=1 -timeout 1h -v ./integration/outage
package outage
