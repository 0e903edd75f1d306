//go:build (linux || darwin) && !race

package main

// raceDetector reports whether this program was built with it.
const raceDetector = false
