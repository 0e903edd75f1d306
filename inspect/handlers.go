package inspect

import (
	"slices"
	"time"
)

// Handlers is where each handler stands.
type Handlers struct {
	Handlers []Handler `json:"handlers"`
	Broker   Broker    `json:"broker"`
}

// Handler is where one handler stands.
type Handler struct {
	Name string `json:"handler"`

	// Stream is what it reads. Empty: it gets only what it is given with Inbox.Accept,
	// or it has never run.
	Stream   string   `json:"stream,omitempty"`
	Ordered  bool     `json:"ordered"`
	Types    []string `json:"types"`
	Subjects []string `json:"subjects"`

	// AckFloor is the sequence up to which everything is decided, as it was recorded: once
	// a minute if the handler is not ordered.
	AckFloor   int64     `json:"ack_floor"`
	AckFloorAt time.Time `json:"ack_floor_at,omitzero"`

	// Processes are the living processes that run it.
	Processes []string `json:"processes"`

	// Reader is who reads the stream of an ordered handler.
	Reader *Reader `json:"reader,omitempty"`

	Held HeldSummary `json:"held"`

	// Broker is what the broker knows of it; nil where that was not asked, or did not
	// answer, or the handler reads no stream.
	Broker *BrokerView `json:"broker,omitempty"`
}

// Reader is the process that reads the stream for an ordered handler.
type Reader struct {
	Name  string    `json:"name,omitempty"` // empty: nobody
	Until time.Time `json:"until,omitzero"` // when its lease ends unless it is renewed
	Reads bool      `json:"reads"`          // the lease has not run out
	Epoch int64     `json:"epoch"`          // how often one has taken the lease

	// Takeovers is how many readers in a row ended without a word, and without the
	// floor having moved.
	Takeovers int64 `json:"takeovers"`
}

func handler(name string, subs []subscription, processes []Process, held []HeldSummary, views map[string]*BrokerView) Handler {
	h := Handler{
		Name: name, Types: []string{}, Subjects: []string{}, Processes: aliveProcesses(processes, name), Held: heldOf(held, name), Broker: views[name],
	}
	for _, s := range subs {
		if s.Handler != name {
			continue
		}
		h.Stream, h.Ordered, h.Types, h.Subjects, h.AckFloor, h.AckFloorAt = s.Stream, s.Ordered, s.Types, s.Subjects, s.AckFloor, s.AckFloorAt
		if s.Ordered {
			h.Reader = &Reader{Name: s.Reader, Until: s.ReaderUntil, Reads: s.HasReader, Epoch: s.Epoch, Takeovers: s.Takeovers}
		}
	}
	return h
}

// handlerNames returns the names of all handlers that something is known of.
func handlerNames(subs []subscription, processes []Process, held []HeldSummary) []string {
	var all []string
	for _, s := range subs {
		all = append(all, s.Handler)
	}
	for _, p := range processes {
		if p.Alive {
			all = append(all, p.Handlers...)
		}
	}
	for _, h := range held {
		if h.Handler != Outgoing {
			all = append(all, h.Handler)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
