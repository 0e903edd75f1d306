//go:build (linux || darwin) && !race

package main

// raceDetector says whether this program was built with the race detector.
const raceDetector = false
