package reconcile

import (
	"testing"

	"pgregory.net/rapid"
)

// FuzzDifference has the fuzzer choose what TestDifference otherwise draws.
func FuzzDifference(f *testing.F) { f.Fuzz(rapid.MakeFuzz(findsTheDifference)) }
