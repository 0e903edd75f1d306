//go:build (linux || darwin) && race

package main

const raceDetector = true
