package inspect

import (
	"slices"
	"time"
)

// Handlers is the state of each handler.
type Handlers struct {
	Handlers []Handler `json:"handlers"`
	Broker   Broker    `json:"broker"`
}

// Handler is the state of one handler.
type Handler struct {
	Name string `json:"handler"`

	// Stream is the stream that the handler reads. It is empty if the handler gets its events only
	// from Inbox.Accept, or has never run.
	Stream   string   `json:"stream,omitempty"`
	Ordered  bool     `json:"ordered"`
	Types    []string `json:"types"`
	Subjects []string `json:"subjects"`

	// AckFloor is a sequence of the stream. The handler has decided every event up to it. If the
	// handler is not ordered, the inbox records it once a minute, at AckFloorAt. If the broker
	// answers, AckFloor is the position that the broker knows, if that is higher.
	AckFloor   int64     `json:"ack_floor"`
	AckFloorAt time.Time `json:"ack_floor_at,omitzero"`

	// Processes are the living processes that run the handler.
	Processes []string `json:"processes"`

	// Reader is the process that reads the stream of an ordered handler.
	Reader *Reader `json:"reader,omitempty"`

	// PausedIn are the living processes in which the handler has paused itself, because it fails
	// for nearly all events. SelfPause is the latest of these pauses.
	PausedIn  []string   `json:"paused_in,omitempty"`
	SelfPause *SelfPause `json:"self_pause,omitempty"`

	// Pause is the operator's pause of the handler. It is nil if there is none.
	Pause *Pause `json:"pause,omitempty"`

	Held HeldSummary `json:"held"`

	// Broker has the facts that the broker knows about the handler. It is nil if the broker was not
	// asked or did not answer, or if the handler reads no stream.
	Broker *BrokerView `json:"broker,omitempty"`
}

// Reader is the process that reads the stream for an ordered handler, or the last process that did.
type Reader struct {
	Name  string    `json:"name,omitempty"` // empty if the last process released its lease
	Until time.Time `json:"until,omitzero"` // when its lease ends if it does not renew the lease, or when the lease ended
	Reads bool      `json:"reads"`          // the lease has not ended
	Epoch int64     `json:"epoch"`          // how many times a process has taken the lease

	// Takeovers is how many readers in a row ended without releasing their lease and without moving
	// AckFloor.
	Takeovers int64 `json:"takeovers"`
}

func handler(name string, subs []subscription, processes []Process, held []HeldSummary, views map[string]*BrokerView) Handler {
	h := Handler{
		Name: name, Types: []string{}, Subjects: []string{}, Processes: aliveProcesses(processes, name), Held: heldOf(held, name), Broker: views[name],
	}
	if in, last := selfPauses(processes, name); len(in) > 0 {
		h.PausedIn, h.SelfPause = in, &last
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
	//guard:one-position-of-a-handler false
	if h.Broker != nil {
		h.AckFloor = max(h.AckFloor, int64(h.Broker.floor)) //nolint:gosec // a sequence
	}
	return h
}

// handlerNames returns the names of all known handlers.
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
