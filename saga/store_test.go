package saga_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/saga"
)

func TestStoreLists(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	store := saga.NewStore(w.pool, saga.StoreConfig{})
	for i := range 25 {
		key := fmt.Sprintf("t%02d", i)
		w.begin(key)
		seat := w.wants("seat.book", "travel.deadline")[0]
		if i%5 == 0 {
			w.give(w.reply(seat, "seat.booked", nil))
			w.give(w.reply(w.wants("payment.charge")[0], "payment.declined", nil))
			w.wants("seat.free")
		}
		if i%5 == 1 {
			w.give(w.reply(seat, "seat.full", nil))
			w.wants("travel.cancelled")
		}
	}
	w.exec("UPDATE postroom.saga SET started_at = '2026-01-01' WHERE key < 't10'") // many instances that began at the same moment
	for _, key := range []string{"t10", "t11", "t12"} {
		w.overrideWait(key, 2*time.Hour)
	}
	tests := map[string]struct {
		filter saga.Filter
		want   int
	}{
		"all":                    {saga.Filter{}, 25},
		"another saga":           {saga.Filter{Saga: "x"}, 0},
		"running":                {saga.Filter{Saga: "travel", States: []saga.State{saga.Running}}, 15},
		"compensating, undone":   {saga.Filter{States: []saga.State{saga.Compensating, saga.Undone}}, 10},
		"at a step":              {saga.Filter{Step: "seat"}, 20},
		"at a step, undone":      {saga.Filter{Step: "seat", States: []saga.State{saga.Undone}}, 0},
		"a key":                  {saga.Filter{Key: "t03"}, 1},
		"a key in another state": {saga.Filter{Key: "t03", States: []saga.State{saga.Done}}, 0},
		"stuck":                  {saga.Filter{Stuck: true}, 2}, // t11 has ended
		"stuck, by key":          {saga.Filter{Stuck: true, Key: "t10"}, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var keys []string
			after := ""
			for {
				page, next, err := store.List(t.Context(), test.filter, postroom.Page{Limit: 4, After: after})
				if err != nil {
					t.Fatal(err)
				}
				for _, i := range page {
					if i.Stuck != (i.Key == "t10" || i.Key == "t12") {
						t.Errorf("%s stuck: %t", i.Key, i.Stuck)
					}
					keys = append(keys, i.Key)
				}
				if after = next; after == "" {
					break
				}
			}
			seen := make(map[string]bool)
			for _, k := range keys {
				if seen[k] {
					t.Errorf("%s is there twice", k)
				}
				seen[k] = true
			}
			if len(keys) != test.want {
				t.Errorf("%d: %v, want %d", len(keys), keys, test.want)
			}
		})
	}
	if _, _, err := store.List(t.Context(), saga.Filter{}, postroom.Page{Limit: 1001}); err == nil {
		t.Error("a page of 1,001")
	}
	if _, _, err := store.List(t.Context(), saga.Filter{}, postroom.Page{After: "x"}); err == nil {
		t.Error("a page after nothing")
	}
}

func TestStoreShows(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	_, payment := w.upTo("t1")
	w.give(w.reply(payment, "payment.declined", paidFor{Reason: "poor"}))
	story, err := saga.NewStore(w.pool, saga.StoreConfig{}).Show(t.Context(), "travel", "t1")
	if err != nil {
		t.Fatal(err)
	}
	var happened []string
	for _, h := range story.History {
		happened = append(happened, fmt.Sprintf("%d %s %s %s %s", h.Revision, h.Step, h.Direction, h.What, h.Type))
	}
	want := []string{
		"1 open do begun ", "1 seat do sent seat.book", "2 seat do done seat.booked", "2 payment do sent payment.charge",
		"3 payment do failed payment.declined", "3 seat undo sent seat.free",
	}
	if got := strings.Join(happened, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("history:\n%s", got)
	}
	if story.State != saga.Compensating || story.Step != "seat" || len(story.WaitsFor) != 1 || story.WaitsFor[0] != "seat.freed" ||
		story.Steps[2].State != saga.StepUndone || !strings.Contains(string(story.Data), "poor") || story.CorrelationID != payment.CorrelationID {
		t.Errorf("story %+v", story)
	}
}
