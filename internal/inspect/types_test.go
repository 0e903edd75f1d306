package inspect_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/inspect"
)

// subscribed runs handlers in an inbox, and waits until they are subscribed.
func (p *rig) subscribed(subs ...inbox.Subscription) {
	p.Helper()
	in := inbox.New(p.pool, p.nc, inbox.Config{})
	for _, sub := range subs {
		in.Handle(sub, postroom.HandlerFunc(failsSome))
	}
	p.run(in)
	p.eventually("the handlers to read", func() bool {
		h, err := p.inspector().Handlers(p.Context())
		if err != nil {
			return false
		}
		ready := 0
		for _, handler := range h.Handlers {
			if handler.Broker != nil && handler.Broker.Consumer != "" {
				ready++
			}
		}
		return ready == len(subs)
	})
}

// If a handler asks for a type that is probably misspelt, that is a finding. If its types are
// right, there is none. There are notes about types that no handler reads, and about types without
// events.
func TestMisspeltTypeIsAFinding(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		asks    []string // kinds, or with a '*' a subject
		stream  []string // types of events that other services published
		log     []string // types of events that are written here and not published
		finds   string   // a part of the finding's text; empty: there is no finding
		alone   string   // the same without a broker
		note    string
		besides []string // what another handler asks for
	}{
		{name: "an empty stream", asks: []string{"plcaed"}},
		{name: "all is well", asks: []string{"order.placed"}, stream: []string{"order.placed"}},
		{
			name: "a slip", asks: []string{"order.plcaed"}, stream: []string{"order.placed"},
			finds: "order.plcaed is in stream SHOP, or among the newest in this database; did you mean SHOP.order.placed?", note: "reads SHOP.order.placed of stream SHOP",
		},
		{
			name: "a slip that the log shows", asks: []string{"order.plcaed"}, log: []string{"order.placed"},
			finds: "did you mean SHOP.order.placed?", alone: "order.plcaed is among the newest in this database; did you mean SHOP.order.placed?", note: "reads SHOP.order.placed",
		},
		{
			name: "a slip beside a handler that has it right", asks: []string{"order.plcaed"}, besides: []string{"order.placed"}, stream: []string{"order.placed"},
			finds: "did you mean SHOP.order.placed?",
		},
		{name: "a type that is rare", asks: []string{"order.placed", "order.refunded"}, stream: []string{"order.placed"}},
		{
			name: "none of its types, as before what writes them is rolled out", asks: []string{"stock.low"}, stream: []string{"order.placed"},
			note: "h: no event of type SHOP.stock.low is in stream SHOP, or among the newest in this database yet, but events of other types are; that is fine " +
				"if their producer is not rolled out yet\nno handler of this database reads SHOP.order.placed",
		},
		{name: "wildcards", asks: []string{"order.*"}, stream: []string{"order.placed"}},
		{name: "wildcards that do not match", asks: []string{"ordre.*"}, stream: []string{"order.placed"}, note: "reads SHOP.order.placed of stream SHOP; handlers of other databases may"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newRig(t)
			p.overrideRelayLease()
			subs := []inbox.Subscription{p.subscription("h", tt.asks...)}
			if strings.Contains(tt.asks[0], "*") {
				subs[0].Subjects, subs[0].Types = subs[0].Types, nil
			}
			if tt.besides != nil {
				subs = append(subs, p.subscription("other", tt.besides...))
			}
			p.subscribed(subs...)
			for _, kind := range tt.stream {
				p.raw(kind, "of-"+kind)
			}
			for _, kind := range tt.log {
				p.write(p.event("of-"+kind, kind, ""))
			}
			p.wantTypes(p.inspector(), tt.finds)
			s := p.wantTypes(p.alone(), tt.alone)
			if len(s.Notes) > 0 {
				t.Errorf("without a broker: %q", s.Notes)
			}
			notes := strings.ReplaceAll(strings.Join(p.status(p.inspector()).Notes, "\n"), p.stream, "SHOP")
			if (tt.note == "") != (notes == "") || !strings.Contains(notes, tt.note) {
				t.Errorf("notes: %q, want %q", notes, tt.note)
			}
		})
	}
}

// wantTypes checks that there is one finding about types, or none.
func (p *rig) wantTypes(i *inspect.Inspector, says string) *inspect.Status {
	p.Helper()
	s := p.status(i)
	found := slices.DeleteFunc(slices.Clone(s.Findings), func(f inspect.Finding) bool { return f.Code != inspect.FoundUnknownType })
	switch {
	case says == "" && len(found) > 0:
		p.Errorf("found %+v, want nothing", found)
	case says != "" && (len(found) != 1 || found[0].Handler != "h" || found[0].Remedy == "" || !strings.Contains(strings.ReplaceAll(found[0].Text, p.stream, "SHOP"), says)):
		p.Errorf("found %+v, want %q", found, says)
	}
	return s
}

// If no handler reads an event, its trace says so, and names the handler that asks for a similar
// type.
func TestAnEventThatNoHandlerTakes(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	p.write(p.event("early", "order.placed", ""))
	const says = "no handler of this database reads"
	notes := func(id string) string {
		p.Helper()
		return strings.ReplaceAll(strings.Join(p.trace(p.inspector(), "/shop", id).Notes, "\n"), p.stream, "SHOP")
	}
	if got := notes("early"); strings.Contains(got, says) {
		t.Errorf("without any handler: %s", got)
	}
	p.subscribed(p.subscription("h", "order.plcaed", "order.paid"))
	p.write(p.event("paid", "order.paid", ""), p.event("else", "stock.low", ""))
	if got, want := notes("early"), says+" SHOP.order.placed, and h asks for SHOP.order.plcaed: is that a misspelling?"; !strings.Contains(got, want) {
		t.Errorf("notes: %q, want %q", got, want)
	}
	if got := notes("else"); !strings.Contains(got, says+" SHOP.stock.low; a handler of another database may") {
		t.Errorf("notes: %q", got)
	}
	if got := notes("paid"); strings.Contains(got, says) {
		t.Errorf("an event that a handler takes: %q", got)
	}
}

// overrideAgeOfSubscriptions makes all subscriptions older by a day.
func (p *rig) overrideAgeOfSubscriptions() {
	p.Helper()
	p.exec("UPDATE postroom.subscription SET created_at = created_at - interval '25 hours'")
}

// A handler that has been subscribed for a day, and reads none of the events of its stream, is a
// finding. A new handler is not, because its producer may come later.
func TestHandlerThatMatchesNothingForADayIsAFinding(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		asks  string
		finds bool
	}{
		"types that do not come":  {"stock.low", true},
		"types that come":         {"order.placed", false},
		"subjects without events": {"stock.*", true},
		"subjects with events":    {"order.*", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newRig(t)
			p.overrideRelayLease()
			sub := p.subscription("h", tt.asks)
			if strings.Contains(tt.asks, "*") {
				sub.Subjects, sub.Types = sub.Types, nil
			}
			p.subscribed(sub)
			p.raw("order.placed", "one")
			found := func() (texts []string) {
				for _, f := range p.status(p.inspector()).Findings {
					if f.Code == inspect.FoundNoMatch {
						texts = append(texts, f.Handler+" "+f.Text)
					}
				}
				return texts
			}
			if all := found(); len(all) != 0 {
				t.Errorf("within a day: %q", all)
			}
			p.overrideAgeOfSubscriptions()
			if all := found(); len(all) != 0 != tt.finds || tt.finds && !strings.HasPrefix(all[0], "h h is subscribed for more than a day") {
				t.Errorf("after a day: %q, want a finding: %t", all, tt.finds)
			}
		})
	}
}
