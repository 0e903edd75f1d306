// Package large asks what operators ask of a database with ten million events in the log and
// 500,000 dead ones, and measures how long the answers take. Run it by hand:
//
//	POSTROOM_LARGE=10000000 go test -count=1 -timeout 2h -v ./integration/large
//
// It takes about 10 GB of disk. Without the variable the database is small, and only the
// answers are checked.
package large
