// Package outage tests handlers that call a vendor, during an outage of the vendor. No event dies,
// and each event takes effect once. After the first calls fail, each process calls the vendor once
// a second at the most. The outage is short. A variable makes it longer:
//
//	POSTROOM_OUTAGE=10m go test -count=1 -timeout 1h -v ./integration/outage
package outage
