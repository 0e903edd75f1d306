// Package behaviours runs handlers that behave at random, as users' handlers do: most events are
// good and write in one of many ways, the others fail in as many ways. The check knows only which
// events are good. Each of these must have exactly one effect; a bad event must have none, and must
// be dead with its own error.
//
//	go test ./integration/behaviours -draws 200
//	POSTROOM_SEED=42 go test ./integration/behaviours -run 'Random/draw_7$' -draws 8
package behaviours
