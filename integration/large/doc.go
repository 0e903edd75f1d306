// Package large asks operators' questions about a database with ten million events in the log and
// 500,000 dead ones, and about one with a million running sagas. It measures how long the answers
// take. Run it by hand:
//
//	POSTROOM_LARGE=10000000 go test -count=1 -timeout 2h -v ./integration/large -run Answers
//	POSTROOM_SAGAS=1000000 go test -count=1 -timeout 1h -v ./integration/large -run ManySagas
//
// It takes about 10 GB of disk, for sagas 4 GB. Without the variables the databases are small, and
// only the answers are checked.
package large
