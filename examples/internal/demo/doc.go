// Package demo is what the examples have in common and nobody reads them for: the command
// line, servers and connections, the story that is told meanwhile, processes that can be
// killed, and the report with the proof at the end.
package demo
