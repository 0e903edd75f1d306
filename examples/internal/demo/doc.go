// Package demo has the code that the examples share: the command line, servers and connections, the
// story that a run prints, the reading of streams, and the report with the proof at the end. A
// reader of several examples has to read this code only once.
package demo
