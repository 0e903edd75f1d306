// Package behaviours runs handlers that behave at random, as users' handlers do: most events are
// good and write in one of many ways, the others fail in as many ways. The check knows only which
// events are good. Each of these must have exactly one effect; a bad event must have none, and must
// be dead with its own error.
//
//	go test ./integration/behaviours -seeds 200
//	go test ./integration/behaviours -seed 42
package behaviours
