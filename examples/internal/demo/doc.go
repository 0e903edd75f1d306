// Package demo has what the examples share, and what is not worth reading in each of them: the
// command line, servers and connections, the story that is printed meanwhile, processes that
// can be killed, and the report with the proof at the end.
package demo
