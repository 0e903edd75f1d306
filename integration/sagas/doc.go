// Package sagas runs sagas with a relay, a broker and inboxes: what package saga decides for one
// event at a time, its own tests show.
//
//	POSTROOM_SAGAS=10000 go test -count=1 -timeout 1h -v ./integration/sagas
package sagas
