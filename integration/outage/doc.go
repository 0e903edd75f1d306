// Package outage tests handlers that call a vendor, during an outage of the vendor. No event may
// die, and each event must take effect once. After the first calls fail, a process may call the
// vendor at most once a second. The outage is short. A variable makes the outage longer:
//
//	POSTROOM_OUTAGE=10m go test -count=1 -timeout 1h -v ./integration/outage
package outage
