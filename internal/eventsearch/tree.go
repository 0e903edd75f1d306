package eventsearch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrNotFound says that no database has the event.
var ErrNotFound = errors.New("not found")

// DatabaseError says in which database a query failed. 0 is the first database.
type DatabaseError struct {
	Database int
	Err      error
}

func (e *DatabaseError) Error() string { return fmt.Sprintf("database %d: %v", e.Database+1, e.Err) }

// Unwrap returns the error of the database.
func (e *DatabaseError) Unwrap() error { return e.Err }

// Database is a database to search.
type Database struct {
	Reader Reader
	DB     Queryer
}

// TreeQuery says which tree to build, and its limits.
type TreeQuery struct {
	Source, ID string // the source and id of an event; ID may also be a correlation id, and Source may be empty
	Depth      int    // the largest number of levels of causes, and also of effects
	Limit      int    // the largest number of events
}

// Tree is a business process. Each event is below the event that caused it.
type Tree struct {
	Roots []*Node // sorted by time
	Count int     // the number of events
	Notes []string
}

// Node is an event of a tree.
type Node struct {
	Event

	Databases []int // the databases that have the event in the log, or in the table held or archive
	Asked     bool
	Missing   bool // only its id is known: no database has the event
	Effects   []*Node

	cause *Node
}

// eventName identifies an event.
type eventName struct{ source, id string }

// grower builds a tree.
type grower struct {
	q     TreeQuery
	of    []Database
	nodes map[eventName]*Node
	byID  map[string][]*Node
	order []*Node // in the order in which they were found
	full  bool
	end   time.Time // when it stops searching logs for correlation ids
	tree  *Tree
}

// Grow returns the tree of an event: its causes, all their effects, and events with the same
// correlation id. The effects of an event are the events that it caused. Grow searches all
// databases, because an effect of an event may be in another database. Correlation ids have no
// index. So, for a correlation id, Grow reads up to MaxLooked rows of each log, beginning at the
// oldest event found so far. It returns ErrNotFound if it finds none of these: the event, an effect
// of the event, or a recent event with the id as its correlation id.
func Grow(ctx context.Context, q TreeQuery, of []Database) (*Tree, error) {
	g := &grower{q: q, of: of, nodes: make(map[eventName]*Node), byID: make(map[string][]*Node), end: time.Now().Add(lookFor), tree: &Tree{}}
	if err := g.start(ctx); err != nil {
		return nil, err
	}
	if err := g.climb(ctx); err != nil {
		return nil, err
	}
	for _, id := range g.correlations() {
		if err := g.process(ctx, id); err != nil {
			return nil, err
		}
	}
	if err := g.descend(ctx); err != nil {
		return nil, err
	}
	if len(g.order) == 0 {
		return nil, ErrNotFound
	}
	g.link()
	g.cut()
	return g.tree, g.handlers(ctx)
}

func (g *grower) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(g.tree.Notes, text) {
		g.tree.Notes = append(g.tree.Notes, text)
	}
}

// add adds events of a database, and returns the events that were not in the tree yet.
func (g *grower) add(database int, events []Event) []*Node {
	var added []*Node
	for _, e := range events {
		is := eventName{e.Source, e.ID}
		n := g.nodes[is]
		if n == nil {
			if len(g.order) >= g.q.Limit {
				g.full = true
				continue
			}
			n = &Node{Event: e}
			g.nodes[is], g.byID[e.ID], g.order = n, append(g.byID[e.ID], n), append(g.order, n)
			added = append(added, n)
		}
		if n.Seq == 0 && e.Seq != 0 { // the row of the log says more than a copy in held or archive
			n.Event = e
		}
		if !slices.Contains(n.Databases, database) {
			n.Databases = append(n.Databases, database)
		}
	}
	return added
}

// read adds the events that a statement finds in each database.
func (g *grower) read(ctx context.Context, sql func(r Reader) string, args ...any) (added []*Node, err error) {
	for n, d := range g.of {
		rows, _ := d.DB.Query(ctx, sql(d.Reader), append([]any{pgx.QueryExecModeExec}, args...)...) // CollectRows reports the error
		events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Event, err error) { return e, row.Scan(e.columns()...) })
		if err != nil {
			return nil, &DatabaseError{n, fmt.Errorf("read causes and effects: %w", err)}
		}
		added = append(added, g.add(n, events)...)
	}
	return added, nil
}

func (g *grower) findIDs(ctx context.Context, source string, ids []string) ([]*Node, error) {
	return g.read(ctx, func(r Reader) string { return r.sql.ByID }, source, ids)
}

func (g *grower) effects(ctx context.Context, causes []string) ([]*Node, error) {
	return g.read(ctx, func(r Reader) string { return r.sql.ByCause }, causes, g.q.Limit+1)
}

// start finds the events that the query names.
func (g *grower) start(ctx context.Context) error {
	found, err := g.findIDs(ctx, g.q.Source, []string{g.q.ID})
	for _, n := range found {
		n.Asked = true
	}
	if err != nil || len(found) > 0 {
		return err
	}
	// Retention may have removed the event from the log, but not its effects.
	if found, err = g.effects(ctx, []string{g.q.ID}); err != nil || len(found) > 0 {
		return err
	}
	for n, d := range g.of { // the id may be the correlation id of a process
		page, err := d.Reader.Page(ctx, d.DB, Selection{CorrelationID: g.q.ID, Source: g.q.Source}, "", g.q.Limit)
		if err != nil {
			return &DatabaseError{n, err}
		}
		g.add(n, page.Events)
		if page.Stopped {
			g.note("database %d: only the newest %d rows of the log were searched for this correlation id", n+1, page.Looked)
		}
		g.full = g.full || page.Next != "" && !page.Stopped
	}
	return nil
}

// climb adds the causes of the events, then the causes of the causes, and so on.
func (g *grower) climb(ctx context.Context) error {
	asked := map[string]bool{}
	for level := 0; ; level++ {
		var wanted []string
		want := func(id string) {
			if id != "" && len(g.byID[id]) == 0 && !asked[id] {
				asked[id] = true
				wanted = append(wanted, id)
			}
		}
		for _, n := range g.order {
			want(n.CausationID)
			want(n.CorrelationID) // the id of the first event, if Event.Follow set it
		}
		if len(wanted) == 0 {
			return nil
		}
		if level == g.q.Depth {
			g.note("there are more causes: the limit is %d levels", g.q.Depth)
			return nil
		}
		if _, err := g.findIDs(ctx, "", wanted); err != nil {
			return err
		}
	}
}

// correlations returns the correlation ids of the tree. The first event of a process has no
// correlation id: its id is the correlation id of the others.
func (g *grower) correlations() []string {
	var ids []string
	for _, n := range g.order {
		id := n.CorrelationID
		if id == "" && (n.Asked || len(g.byID[n.CausationID]) == 0) {
			id = n.ID
		}
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) > maxProcesses {
		g.note("there are %d correlation ids: the logs were searched for %d of them", len(ids), maxProcesses)
		ids = ids[:maxProcesses]
	}
	return ids
}

// maxProcesses is the largest number of correlation ids for which Grow reads the logs.
const maxProcesses = 2

// process adds the events with a correlation id: events of each log, and events that only the
// tables held or archive have.
func (g *grower) process(ctx context.Context, correlation string) error {
	since := time.Time{}
	for _, n := range g.order {
		if !n.LoggedAt.IsZero() && (since.IsZero() || n.LoggedAt.Before(since)) {
			since = n.LoggedAt
		}
	}
	if since.IsZero() { // the times of these events are outside the years 1 to 9999
		return nil
	}
	for n, d := range g.of {
		if err := g.scan(ctx, n, d, correlation, since.Add(-clockSlack)); err != nil {
			return &DatabaseError{n, err}
		}
		s := Selection{CorrelationID: correlation}
		for _, sql := range []string{d.Reader.sql.PageHeld, d.Reader.sql.PageArchive} {
			l := &list{r: d.Reader, db: d.DB, s: &s, sql: sql, before: math.MaxInt64, left: maxCopies, limit: g.q.Limit, end: g.end}
			if err := l.look(ctx); err != nil {
				return &DatabaseError{n, err}
			}
			g.add(n, l.found)
			if l.stopped {
				g.note("database %d: only the newest %d held and discarded events were searched", n+1, maxCopies)
			}
		}
	}
	return nil
}

// scan adds the events of one log that have the correlation id and were written at since or later.
func (g *grower) scan(ctx context.Context, n int, d Database, correlation string, since time.Time) error {
	from, err := d.Reader.seqAt(ctx, d.DB, since)
	if err != nil {
		return err
	}
	var reached time.Time
	for left := MaxLooked; !g.full; left -= lookedAtOnce {
		if left <= 0 || time.Now().After(g.end) {
			g.note("database %d: the log was searched for the correlation id up to %s, for %d rows: later events without a known cause are missing",
				n+1, reached.Format(time.RFC3339), MaxLooked-left)
			return nil
		}
		rows, _ := d.DB.Query(ctx, d.Reader.sql.Process, pgx.QueryExecModeExec, from, correlation, lookedAtOnce, g.q.Limit+1) // ForEachRow reports the error
		var to edge
		var e Event
		var found []Event
		_, err := pgx.ForEachRow(rows, append([]any{&to.looked, &to.reached, at(&to.at)}, e.columns()...), func() error {
			if e.at != 0 {
				found = append(found, e)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("look for events: %w", err)
		}
		g.add(n, found)
		if to.looked < lookedAtOnce {
			return nil
		}
		from, reached = to.reached+1, to.at
	}
	return nil
}

// descend adds the effects of the events, then the effects of the effects, and so on.
func (g *grower) descend(ctx context.Context) error {
	causes := []string{g.q.ID}
	for _, n := range g.order {
		causes = append(causes, n.ID, n.CausationID, n.CorrelationID)
	}
	for range g.q.Depth + 1 { // one level more than the tree shows, to know whether there are more
		causes = slices.DeleteFunc(causes, func(id string) bool { return id == "" })
		slices.Sort(causes)
		if causes = slices.Compact(causes); len(causes) == 0 || g.full {
			return nil
		}
		added, err := g.effects(ctx, causes)
		if err != nil {
			return err
		}
		causes = nil
		for _, n := range added {
			causes = append(causes, n.ID)
		}
	}
	return nil
}

// link puts each event below its cause.
func (g *grower) link() {
	slices.SortStableFunc(g.order, func(a, b *Node) int {
		if c := a.LoggedAt.Compare(b.LoggedAt); c != 0 {
			return c
		}
		return cmp.Compare(a.Seq, b.Seq)
	})
	missing := make(map[string]*Node)
	for _, n := range g.order {
		cause := g.causeOf(n)
		if cause == nil && n.CausationID != "" && len(g.byID[n.CausationID]) == 0 {
			if cause = missing[n.CausationID]; cause == nil {
				cause = &Node{Event: Event{ID: n.CausationID}, Missing: true, Asked: n.CausationID == g.q.ID}
				missing[n.CausationID] = cause
				g.tree.Roots = append(g.tree.Roots, cause)
			}
		}
		if n.cause = cause; cause == nil {
			g.tree.Roots = append(g.tree.Roots, n)
			continue
		}
		cause.Effects = append(cause.Effects, n)
	}
	g.tree.Count = len(g.order)
	if g.full {
		g.note("there are more events: the limit is %d", g.q.Limit)
	}
}

// causeOf returns the event that caused n. If several events have the cause's id, it prefers an
// event of n's process.
func (g *grower) causeOf(n *Node) *Node {
	var cause *Node
	for _, c := range g.byID[n.CausationID] {
		same := c.CorrelationID == n.CorrelationID || c.ID == n.CorrelationID
		if cause == nil || same && cause.CorrelationID != n.CorrelationID {
			cause = c
		}
	}
	for up := cause; up != nil; up = up.cause {
		if up == n { // the two would cause each other
			return nil
		}
	}
	return cause
}

// cut removes effects that are too many levels below the event of the query.
func (g *grower) cut() {
	level := 0
	for _, n := range g.order {
		if n.Asked {
			up := 0
			for c := n.cause; c != nil; c = c.cause {
				up++
			}
			level = max(level, up)
		}
	}
	var prune func(nodes []*Node, left int)
	prune = func(nodes []*Node, left int) {
		for _, n := range nodes {
			if left == 0 && len(n.Effects) > 0 {
				g.note("there are more effects: the limit is %d levels", g.q.Depth)
				g.drop(n.Effects)
				n.Effects = nil
			}
			prune(n.Effects, left-1)
		}
	}
	prune(g.tree.Roots, level+g.q.Depth)
}

// drop removes events that the tree does not show.
func (g *grower) drop(nodes []*Node) {
	for _, n := range nodes {
		g.drop(n.Effects)
		g.tree.Count--
		g.order = slices.DeleteFunc(g.order, func(o *Node) bool { return o == n })
	}
}

// handlers adds what the handlers of all databases did with the events.
func (g *grower) handlers(ctx context.Context) error {
	events := make([]Event, len(g.order))
	for d, database := range g.of {
		for n := range g.order {
			events[n] = Event{Source: g.order[n].Source, ID: g.order[n].ID}
		}
		if err := database.Reader.Handlers(ctx, database.DB, events); err != nil {
			return &DatabaseError{d, err}
		}
		for n := range g.order {
			for _, h := range events[n].Handlers {
				h.Database = d
				g.order[n].Handlers = append(g.order[n].Handlers, h)
			}
		}
	}
	return nil
}
