package reconcile

import (
	"testing"

	"pgregory.net/rapid"
)

// FuzzDifference lets the fuzzer choose the values that TestDifference draws at random.
func FuzzDifference(f *testing.F) { f.Fuzz(rapid.MakeFuzz(findsTheDifference)) }
