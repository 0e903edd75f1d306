package alerts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// step is the time between two values, and moments is the number of values.
const (
	step    = 15 * time.Second
	moments = 160
)

// series are the metrics of one moment: labels, with the name among them, and the value.
type series []one

type one struct {
	labels labels.Labels
	value  string
}

// parse reads an exporter's output, as a Prometheus server does whose configuration names the job
// shop and the instance a.
func parse(t *testing.T, text string) series {
	t.Helper()
	var all series
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		set, err := promql.ParseMetric(line[:at])
		if err != nil {
			t.Fatal(err)
		}
		set = labels.NewBuilder(set).Set("job", "shop").Labels()
		all = append(all, one{instance(set, "a"), strings.TrimSpace(line[at:])})
	}
	return all
}

func instance(set labels.Labels, name string) labels.Labels {
	return labels.NewBuilder(set).Set("instance", name).Labels()
}

// selects returns the series that match a selector.
func (s series) selects(t *testing.T, selector string) map[int]bool {
	t.Helper()
	matchers, err := promql.ParseMetricSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[int]bool)
	for i, one := range s {
		if matches(one.labels, matchers) {
			found[i] = true
		}
	}
	return found
}

func matches(set labels.Labels, matchers []*labels.Matcher) bool {
	for _, m := range matchers {
		if !m.Matches(set.Get(m.Name)) {
			return false
		}
	}
	return true
}

// missing returns the selectors of an expression that match no series, and the labels in its
// groupings and matchings that no matched series has.
func (s series) missing(t *testing.T, expr string) []string {
	t.Helper()
	parsed, err := promql.ParseExpr(expr)
	if err != nil {
		t.Fatal(err)
	}
	var missing, by []string
	has := make(map[string]bool)
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			found := false
			for _, one := range s {
				if matches(one.labels, n.LabelMatchers) {
					found = true
					one.labels.Range(func(l labels.Label) { has[l.Name] = true })
				}
			}
			if !found {
				missing = append(missing, n.String())
			}
		case *parser.AggregateExpr:
			by = append(by, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				by = append(by, n.VectorMatching.MatchingLabels...)
			}
		}
		return nil
	})
	for _, name := range by {
		if !has[name] {
			missing = append(missing, fmt.Sprintf("label %s in %s", name, expr))
		}
	}
	return missing
}

// holds fails the test if an expression uses a series that no part exports.
func (s series) holds(t *testing.T, expr string) {
	t.Helper()
	if missing := s.missing(t, expr); len(missing) > 0 {
		t.Errorf("no part reports %s", strings.Join(missing, "; "))
	}
}

// fires reports whether a rule's alert would fire at the last moment if all series but the
// changed ones had kept their values.
func (s series) fires(t *testing.T, rule rulefmt.Rule, change set) bool {
	t.Helper()
	values := make([]string, len(s))
	for i, one := range s {
		values[i] = fmt.Sprintf("%sx%d", one.value, moments-1)
	}
	for selector, sequence := range change {
		found := s.selects(t, selector)
		if len(found) == 0 {
			t.Errorf("no part reports %s", selector)
		}
		for i := range found {
			values[i] = sequence
		}
	}
	var load strings.Builder
	fmt.Fprintln(&load, "load", step)
	for i, one := range s {
		fmt.Fprintf(&load, "  %s %s\n", one.labels, values[i])
	}
	storage := promqltest.LoadedStorage(t, load.String())
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	for back := range lasts(rule) {
		at := time.Unix(0, 0).Add(time.Duration(moments-1-back) * step)
		query, err := engine.NewInstantQuery(t.Context(), storage, nil, rule.Expr, at)
		if err != nil {
			t.Fatal(err)
		}
		vector, err := query.Exec(t.Context()).Vector()
		if err != nil {
			t.Fatal(err)
		}
		query.Close()
		if len(vector) == 0 {
			return false
		}
	}
	return true
}
