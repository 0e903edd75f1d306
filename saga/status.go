package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/text"
)

// Status says how far an instance has come.
type Status struct {
	Saga     string       `json:"saga"`
	Key      string       `json:"key"`
	Version  int          `json:"version"`
	State    State        `json:"state"`
	Revision int64        `json:"revision"`
	Steps    []StepStatus `json:"steps"`

	// WaitsFor are the types of the events that end the pending step. WaitsFor is empty if the
	// instance has ended.
	WaitsFor  []string  `json:"waits_for,omitempty"`
	Deadline  time.Time `json:"deadline,omitzero"` // the deadline of the pending step
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
}

// StepStatus says how far a step has come.
type StepStatus struct {
	Name  string    `json:"name"`
	State StepState `json:"state"`
}

// StepState says how far a step has come.
type StepState string

// The states of a step.
const (
	StepOpen    StepState = "open"    // the step has not begun
	StepPending StepState = "pending" // the instance waits for the step
	StepDone    StepState = "done"
	StepUndoing StepState = "undoing" // the instance waits until the step is undone
	StepUndone  StepState = "undone"  // the step is undone, has failed, or has nothing to undo
)

// Status returns how far an instance has come, or [ErrUnknown]. It waits for no lock.
func (g *Saga[S]) Status(ctx context.Context, key string) (Status, error) {
	st, _, err := g.status(ctx, key)
	return st, err
}

func (g *Saga[S]) status(ctx context.Context, key string) (st Status, data []byte, err error) {
	if g.err != nil {
		return Status{}, nil, g.err
	}
	st = Status{Saga: g.def.Name, Key: key}
	//guard:a-key-that-no-table-can-have-is-unknown false
	if !text.Valid(key) {
		return Status{}, nil, fmt.Errorf("saga %s: %w: the key is no text that PostgreSQL can store", g.def.Name, ErrUnknown)
	}
	var step string
	var deadline, ended *time.Time
	err = g.pool.QueryRow(ctx, g.table.sql.Status, g.def.Name, key).
		Scan(&st.Version, &st.State, &step, &st.Revision, &data, &deadline, &st.StartedAt, &ended)
	if errors.Is(err, pgx.ErrNoRows) {
		return Status{}, nil, fmt.Errorf("saga %s, key %s: %w", g.def.Name, key, ErrUnknown)
	}
	if err != nil {
		return Status{}, nil, fmt.Errorf("saga %s: read the instance: %w", g.def.Name, g.table.explain(err, g.pool))
	}
	st.Deadline, st.EndedAt = or(deadline), or(ended)
	if p := g.plans[st.Version]; p != nil {
		outlines := p.outlines()
		st.Steps, st.WaitsFor = progress(outlines, st.State, step), waitsFor(outlines, st.State, step)
	}
	return st, data, nil
}

// progress returns the state of each step of an instance. If the instance undoes its steps, the
// steps after the pending step count as undone, even if they never began.
func progress(steps []outline, state State, pending string) []StepStatus {
	all := make([]StepStatus, 0, len(steps))
	at := 0
	for i, s := range steps {
		if s.Name == pending {
			at = i
		}
	}
	for i, s := range steps {
		how := StepOpen
		switch {
		case state == Done, state == Running && i < at, state == Compensating && i < at:
			how = StepDone
		case state == Running && i == at:
			how = StepPending
		case state == Compensating && i == at:
			how = StepUndoing
		case state == Undone, state == Compensating:
			how = StepUndone
		}
		all = append(all, StepStatus{s.Name, how})
	}
	return all
}

// waitsFor returns the types of the events that end the pending step.
func waitsFor(steps []outline, state State, pending string) []string {
	for _, s := range steps {
		switch {
		case s.Name != pending:
		case state == Running:
			return append(append([]string{}, s.Done...), s.Failed...)
		case state == Compensating:
			return s.Undone
		}
	}
	return nil
}

// StatusHandler returns an HTTP handler that answers with the status of an instance. The key of the
// instance is the path value "key", as in "GET /orders/{key}/checkout". The function public returns
// the part of the state that the answer shows under "data". If public is nil, the answer has no
// "data". The ETag is the revision. So if a client sends If-None-Match and nothing has changed, the
// client gets 304. Retry-After is 1 until the instance has ended. The handler waits for no lock. It
// does not authenticate clients: wrap it.
func (g *Saga[S]) StatusHandler(public func(S) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		st, data, err := g.status(r.Context(), r.PathValue("key"))
		switch {
		case errors.Is(err, ErrUnknown):
			problem(w, http.StatusNotFound, "there is no such process")
			return
		case err != nil:
			w.Header().Set("Retry-After", "1")
			problem(w, http.StatusServiceUnavailable, "the status cannot be read now")
			return
		}
		answer := struct {
			Status
			Data any `json:"data,omitempty"`
		}{Status: st}
		if public != nil {
			var s S
			if err := json.Unmarshal(data, &s); err != nil {
				problem(w, http.StatusInternalServerError, "the state cannot be decoded")
				return
			}
			answer.Data = public(s)
		}
		tag := strconv.Quote(strconv.FormatInt(st.Revision, 10))
		w.Header().Set("ETag", tag)
		if !st.State.Ended() {
			w.Header().Set("Retry-After", "1")
		}
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		writeJSON(w, http.StatusOK, "application/json", answer)
	})
}

// problem answers with a problem document of RFC 9457.
func problem(w http.ResponseWriter, status int, title string) {
	writeJSON(w, status, "application/problem+json", struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
	}{title, status})
}

func writeJSON(w http.ResponseWriter, status int, media string, body any) {
	document, err := json.Marshal(body)
	if err != nil {
		status, media, document = http.StatusInternalServerError, "application/problem+json", []byte(`{"title":"the status cannot be encoded","status":500}`)
	}
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	_, _ = w.Write(document) // an error means that the client is gone
}
