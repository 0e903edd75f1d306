package saga

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/metric"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/jsonfit"
)

// Definition describes a saga whose state is an S. The saga stores it as JSON, 960 KiB at most.
type Definition[S any] struct {
	// Name identifies the saga. It must be unique within this database and must never change. It is
	// the first part of the types of the saga's own events, so it has the form of a type. Required.
	Name string

	// Version is the version of the steps, from 1. An instance keeps the version with which it
	// began. You need no new version to add types to a reply, or to change payloads, times or
	// fields of S. But if a participant needs a new field of a command, raise Version too: a process
	// of the older program builds commands without the field. To add, rename, remove or reorder
	// steps, raise Version and keep the previous definition in Older. Otherwise a process of the older program would end an instance without
	// the new step. Required.
	Version int

	// Steps are done in this order, and undone in reverse order. Required.
	Steps []Step[S]

	// Older are the definitions of older versions. Keep each definition as long as it has instances
	// that have not ended. The saga uses only their Version, Steps and Ended.
	Older []Definition[S]

	// Start is the event that begins an instance. If it is not set, only [Saga.Begin] begins one.
	Start Start[S]

	// Ended are the events that announce how an instance ended.
	Ended End[S]

	// Stuck is how long an instance may wait for a step without Within before tools report it as
	// stuck. If the step has Within, they report it five minutes after the deadline.
	//
	// Defaults to an hour.
	Stuck time.Duration

	// Keep is how long the saga keeps an instance that has ended, so that a repeated Begin changes
	// nothing. The saga keeps the instance at least as long as the inbox remembers events.
	//
	// Defaults to 30 days.
	Keep time.Duration

	// SubjectPrefix begins the subjects of the events that the saga writes: a subject is
	// SubjectPrefix, a dot and the type. Set this if tenants, each with a schema, share a stream.
	//
	// Defaults to none: the subject is the type.
	SubjectPrefix string

	// MeterProvider receives metrics.
	//
	// Defaults to the global provider of OpenTelemetry.
	MeterProvider metric.MeterProvider
}

// Step is a step of a saga. A step without Do has only an Undo, or waits for an event of [OnAny].
type Step[S any] struct {
	// Name identifies the step within its saga. It has the form of a type. Required.
	Name string

	// Do sends a command or runs a function.
	Do Action[S]

	// Done is the reply that ends the step. Without Done the step ends at once.
	Done Reply[S]

	// Failed is the reply that says that the step had no effect. The saga then undoes the
	// steps before it.
	Failed Reply[S]

	// Undo undoes the step. A step with a Do must have one if its outcome can stay unknown: if it
	// has Within, or if Failed accepts [OnAny] or [Died].
	Undo Action[S]

	// Undone is the reply to an Undo that sends a command. The saga waits for it without a
	// deadline.
	Undone Reply[S]

	// Within is how long the saga waits for Done or Failed. After that the outcome is unknown, and
	// the saga undoes this step and the steps before it.
	//
	// Defaults to 0, which means for ever.
	Within time.Duration
}

// Action says what a step does: see [Send] and [Local].
type Action[S any] struct {
	eventType string
	data      func(*S) any
	local     func(ctx context.Context, tx pgx.Tx, s *S) error
}

func (a Action[S]) isSet() bool { return a.eventType != "" || a.local != nil }

// Send returns an action that writes an event of the given type. The data of the event is the JSON
// of what the function data returns. If the event is a command of a step, it has the instance's
// key, an id that identifies the step and direction, and the header "saga-step"; see [StepKey].
func Send[S, T any](eventType string, data func(*S) T) Action[S] {
	return Action[S]{eventType: eventType, data: func(s *S) any { return data(s) }}
}

// Local returns an action that runs a function in the saga's transaction, in this service's
// database. The function may change the state. It must not call other systems, because it may run
// again. If it calls [Saga.Compensate] for its own instance, the saga returns an error and stores
// nothing: use [GiveUp].
//
// If the function returns an error, the inbox tries the event again, or [Saga.Begin] returns the
// error to its caller. If the function is a Do and returns an error of [GiveUp], the saga
// compensates instead: it rolls back the function's writes, and keeps the changed state.
func Local[S any](f func(ctx context.Context, tx pgx.Tx, s *S) error) Action[S] {
	return Action[S]{local: f}
}

// giveUp is an error of GiveUp.
type giveUp struct{ err error }

func (g *giveUp) Error() string { return "give up: " + g.err.Error() }
func (g *giveUp) Unwrap() error { return g.err }

// GiveUp marks an error of a [Local] function that is a Do: the step cannot be done, and the saga
// undoes the steps before it. GiveUp has no effect in an Undo, because a saga cannot give up an
// Undo. It has no effect if err is a deadlock or another conflict with a concurrent transaction.
// GiveUp returns nil for nil.
func GiveUp(err error) error {
	if err == nil {
		return nil
	}
	return &giveUp{err}
}

// Reply is the event for which a step waits: see [On], [OnAny], [Died] and [OneOf].
type Reply[S any] struct{ answers []answer[S] }

// answer is one type of event that a Reply accepts.
type answer[S any] struct {
	eventType string
	anyCause  bool // the reply accepts events that no command of the saga caused
	died      bool // the reply says that the command is dead
	apply     func(*S, []byte) error
}

func (r Reply[S]) isSet() bool { return len(r.answers) > 0 }

// find returns the answer for a type, and only an answer of OnAny if anyCause is true.
func (r Reply[S]) find(eventType string, anyCause bool) *answer[S] {
	for i := range r.answers {
		if a := &r.answers[i]; a.eventType == eventType && (a.anyCause || !anyCause) {
			return a
		}
	}
	return nil
}

// On returns a reply: an event of the given type that the command of the step caused. The function
// apply changes the state according to the event's data, and must do nothing else. For an event
// without data, or with null, it gets the zero value. Data that has none of the fields of T makes the
// event a dead letter. If apply is nil, the state does not change, and the data is not decoded.
func On[S, T any](eventType string, apply func(*S, T)) Reply[S] {
	return Reply[S]{[]answer[S]{{eventType: eventType, apply: applied(apply)}}}
}

// OnAny is [On] for an event with the instance's key that no command of this saga caused. Use it
// for services that do not answer commands, and for actions of people. If the event arrives before
// the saga waits for it, the event does not count, and the saga only notes it. If OnAny is in
// Failed of a step with a Do, the outcome of the Do is unknown, so the saga also undoes this step.
func OnAny[S, T any](eventType string, apply func(*S, T)) Reply[S] {
	return Reply[S]{[]answer[S]{{eventType: eventType, anyCause: true, apply: applied(apply)}}}
}

// Died is [On] for the event by which a participant reports that its command is dead; see
// [ReportDeath]. A dead command may have had its effect: a vendor may have charged, and only the
// answer was lost. So the saga also undoes this step, and the step must have an Undo. At an ordered
// participant the Undo waits until an operator has discarded the dead command. Do not replay that
// command.
func Died[S any](eventType string, apply func(*S, Death)) Reply[S] {
	r := On(eventType, apply)
	r.answers[0].died = true
	return r
}

// OneOf returns a reply that is any one of several replies.
func OneOf[S any](replies ...Reply[S]) Reply[S] {
	var all Reply[S]
	for _, r := range replies {
		all.answers = append(all.answers, r.answers...)
	}
	return all
}

// applied returns a function that decodes an event's data and passes it to apply.
func applied[S, T any](apply func(*S, T)) func(*S, []byte) error {
	return func(s *S, data []byte) error {
		if apply == nil {
			return nil
		}
		v, err := decodeData[T](data)
		if err == nil {
			apply(s, v)
		}
		return err
	}
}

// decodeData decodes the data of an event. Without data, and for null, it returns the zero value.
func decodeData[T any](data []byte) (v T, err error) {
	if len(data) == 0 || string(bytes.TrimSpace(data)) == "null" {
		return v, nil
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return v, fmt.Errorf("decode the event's data as %T: %w", v, err)
	}
	//guard:a-saga-applies-no-data-of-another-shape false
	if problem := jsonfit.Problem(data, reflect.ValueOf(&v).Elem()); problem != "" {
		return v, fmt.Errorf("decode the event's data%s", problem)
	}
	return v, nil
}

// Start is the event that begins an instance: see [StartOn].
type Start[S any] struct {
	eventType string
	begin     func([]byte) (key string, s S, err error)
}

// StartOn returns a Start: an event of the given type begins an instance. The function begin
// returns the instance's key and state. If the key is empty, the instance gets the event's key.
//
// If an instance with the key exists, an event with the same data changes nothing, and an event
// with other data becomes a dead letter. A new handler begins with the oldest event of its stream.
// If older events must not begin instances, set Subscription.From to inbox.DeliverNew.
func StartOn[S, T any](eventType string, begin func(T) (key string, s S)) Start[S] {
	return Start[S]{eventType: eventType, begin: func(data []byte) (key string, s S, err error) {
		v, err := decodeData[T](data)
		if err != nil {
			return key, s, err
		}
		key, s = begin(v)
		return key, s, nil
	}}
}

// End are the events that a saga writes when an instance ends. Their cause is the event that began
// the instance, if there is one. So a saga can be a participant of another saga, with the same key:
// it starts with the other saga's command, and answers with its End. A handler of the other saga's
// Undo calls [Saga.Compensate], and the Undone event answers the Undo. If Compensate returns
// [ErrOver], the instance is done: the handler itself must undo it, and answer with Follow.
type End[S any] struct {
	Done   Action[S] // each step is done
	Undone Action[S] // each step that was done is undone
}

func (s Start[S]) isSet() bool { return s.eventType != "" }

// validType returns the fault of an event type.
func validType(eventType string) error {
	return postroom.Event{Type: eventType, Source: "check"}.Validate()
}
