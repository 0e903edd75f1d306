// Package sagas runs sagas with a relay, a broker and inboxes. The tests of package saga show how
// it decides for one event at a time.
//
//	POSTROOM_SAGAS=10000 go test -count=1 -timeout 1h -v ./integration/sagas
package sagas
