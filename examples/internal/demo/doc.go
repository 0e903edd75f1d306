// Package demo has the code that the examples share, so that a reader need not read it in each of
// them: the command line, servers and connections, the story that a run prints, the reading of
// streams, and the report with the proof at the end.
package demo
