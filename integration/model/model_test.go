package model_test

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/postroom/postroom/integration/model"
)

// everything is every fault on one path, all at once.
var everything = model.Faults{Crashes: 1, TakeOvers: 1, Losses: 1, Forgets: 1, Deaths: 2, Refusals: 1}

// faultSets are explored with all rules. More faults on one path take longer: with POSTROOM_SOAK
// set they are explored, too.
func faultSets() []model.Faults {
	faults := []model.Faults{
		{Deaths: 2},
		{Deaths: 1, Refusals: 1},
		{Deaths: 1, Failures: 1, Lapses: 1},
		{Deaths: 1, Failures: 1, Lapses: 1, Cancels: 1},
		{Crashes: 1, TakeOvers: 1},
		{Crashes: 1, Losses: 1, Forgets: 1, Deaths: 1},
		{TakeOvers: 1, Losses: 1, Deaths: 1},
		{TakeOvers: 1, Forgets: 1, Deaths: 1},
		{Failovers: 1, Deaths: 1},
	}
	if os.Getenv("POSTROOM_SOAK") != "" {
		faults = append(faults, everything, model.Faults{TakeOvers: 2, Deaths: 2}, model.Faults{Crashes: 2, Losses: 1},
			model.Faults{Failovers: 1, Losses: 1, Forgets: 1}, model.Faults{Failovers: 1, Crashes: 1}, model.Faults{Failovers: 1, TakeOvers: 1})
	}
	return faults
}

func TestTheDesignHoldsInEveryState(t *testing.T) {
	states, actions := 0, make(map[model.Act]bool)
	for _, f := range faultSets() {
		w := model.World{Faults: f}
		r := w.Explore(model.AllInvariants)
		t.Logf("%s: %s", w, r)
		if r.Broken != 0 {
			t.Errorf("%s: %s", w, r)
		}
		states += r.States
		for act := range r.Taken {
			actions[act] = true
		}
	}
	t.Logf("%d states in all", states)
	for act := range model.Act(model.Acts) {
		if never := act == model.Looks; actions[act] == never {
			t.Errorf("inconclusive: step %q was taken: %t", model.Step{Act: act}, actions[act])
		}
	}
}

// needed says which invariant breaks without each rule, and which faults that takes.
var needed = []struct {
	without model.Rule
	faults  model.Faults
	breaks  model.Invariant
}{
	{model.ReadCommitted, model.Faults{}, model.NoGhost},
	{model.LateOpen, model.Faults{}, model.MarkImpliesStored},
	{model.LateOpen, model.Faults{}, model.NoLoss},
	{model.LateNew, model.Faults{}, model.MarkImpliesStored},
	{model.LateNew, model.Faults{}, model.NoLoss},
	{model.LateFirst, model.Faults{}, model.KeyOrder},
	{model.OnePerKey, model.Faults{Losses: 1}, model.KeyOrder},
	{model.SameMessageID, model.Faults{Losses: 1}, model.OneCopy},
	{model.RecordAcked, model.Faults{}, model.MarkImpliesStored},
	{model.RecordAcked, model.Faults{Crashes: 1, Losses: 1}, model.NoLoss},
	{model.RecordPending, model.Faults{}, model.MarkImpliesStored},
	{model.RecordPending, model.Faults{Crashes: 1}, model.NoLoss},
	{model.EpochCheck, model.Faults{TakeOvers: 1}, model.Fence},
	{model.DropMemory, model.Faults{Failovers: 1}, model.MarkImpliesStored},
	{model.DropMemory, model.Faults{Failovers: 1}, model.NoLoss},
	{model.InsertFirst, model.Faults{}, model.EffectOnce},
	{model.OneTransaction, model.Faults{Deaths: 1}, model.EffectOnce},
	{model.AckAfterCommit, model.Faults{Deaths: 1}, model.NoLoss},
	{model.CommitDecides, model.Faults{Refusals: 1}, model.NoLoss},
	{model.ClaimCheck, model.Faults{Failures: 1, Lapses: 1}, model.Fence},
	{model.ClaimCheck, model.Faults{Failures: 1, Lapses: 1, Cancels: 1}, model.EffectOnce},
}

func TestEveryRuleIsNeeded(t *testing.T) {
	var mu sync.Mutex
	whole := make(map[model.Faults]func() model.Result) // with all rules; several cases have the same faults
	withAllRules := func(f model.Faults) model.Result {
		mu.Lock()
		explore := whole[f]
		if explore == nil {
			explore = sync.OnceValue(func() model.Result { return model.World{Faults: f}.Explore(model.AllInvariants) })
			whole[f] = explore
		}
		mu.Unlock()
		return explore()
	}
	var rules model.Rule
	var invariants model.Invariant
	for _, tt := range needed {
		rules |= tt.without
		invariants |= tt.breaks
		t.Run(fmt.Sprintf("%s/%s", tt.without, tt.breaks), func(t *testing.T) {
			t.Parallel()
			w := model.World{Without: tt.without, Faults: tt.faults}
			r := w.Explore(tt.breaks)
			if r.Broken != tt.breaks {
				t.Fatalf("%s: %s; want %s to break", w, r, tt.breaks)
			}
			t.Logf("%s: %s", w, r)

			if r := withAllRules(tt.faults); r.Broken != 0 {
				t.Errorf("all rules, %+v: %s: the missing rule did not cause this", tt.faults, r)
			}
		})
	}
	if rules != model.AllRules || invariants != model.AllInvariants {
		t.Errorf("rules tried: %s, want all; invariants broken: %s, want all", rules, invariants)
	}
}

// Equivalent states are visited once. That must not hide a broken invariant.
func TestMergingStatesHidesNothing(t *testing.T) {
	var faults model.Faults // with all rules: every state is visited
	if os.Getenv("POSTROOM_SOAK") != "" {
		faults.Losses = 1
	}
	for _, tt := range append(needed[:len(needed):len(needed)], struct {
		without model.Rule
		faults  model.Faults
		breaks  model.Invariant
	}{0, faults, model.AllInvariants}) {
		w := model.World{Without: tt.without, Faults: tt.faults}
		if w.Faults.Failovers > 0 || w.Faults.Crashes > 0 {
			continue // hundreds of thousands of states, one by one
		}
		t.Run(w.String()+"/"+tt.breaks.String(), func(t *testing.T) {
			t.Parallel()
			merged := w.Explore(tt.breaks)
			w.Plain = true
			plain := w.Explore(tt.breaks)
			switch {
			case merged.Broken != plain.Broken:
				t.Errorf("merged: %s\nplain: %s", merged, plain)
			case merged.Broken == 0 && merged.Ends != plain.Ends:
				t.Errorf("%d ends where states are merged, %d where not", merged.Ends, plain.Ends)
			case len(merged.Way) > len(plain.Way):
				t.Errorf("merged: %s\nplain: %s", merged, plain)
			}
		})
	}
}

// A leader that slept and wakes up overwrites the record of its successor.
func ExampleWorld_Explore() {
	w := model.World{Without: model.EpochCheck, Faults: model.Faults{TakeOvers: 1}}
	r := w.Explore(model.Fence)
	fmt.Println(r.Broken, "breaks:")
	for _, step := range r.Way[1:] {
		fmt.Println(step)
	}
	// Output:
	// Fence breaks:
	// relay 1      takes the lease
	// relay 2      takes the lease over: its leader sleeps
	// relay 1      records what is published
}
