// Package sagas runs sagas with a relay, a broker and inboxes. The tests in package saga itself
// show how a saga decides about one event at a time. A variable sets the number of sagas:
//
//	POSTROOM_SAGAS=10000 go test -count=1 -timeout 1h -v ./integration/sagas
package sagas
