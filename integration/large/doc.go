// Package large asks questions that operators have about large databases, and measures how long the
// answers take. One database has ten million events in the log and 500,000 dead events. Another has
// a million running sagas. Another has four million held events of fifty handlers. Run it by hand:
//
//	POSTROOM_LARGE=10000000 go test -count=1 -timeout 2h -v ./integration/large -run Answers
//	POSTROOM_SAGAS=1000000 go test -count=1 -timeout 1h -v ./integration/large -run ManySagas
//	POSTROOM_HELD=4000000 go test -count=1 -timeout 1h -v ./integration/large -run Counted
//
// The first command takes about 10 GB of disk, the second 4 GB. Without the variables the databases
// are small, and the tests check only the answers.
package large
