package alerts

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

type dashboard struct{ Panels []panel }

type panel struct {
	Title, Type, Description string
	Targets                  []target
}

type target struct{ Expr, LegendFormat string }

// query is the query that Grafana sends if it shows all jobs.
func (t target) query() string {
	return strings.NewReplacer("$__rate_interval", "5m", "$job", ".*").Replace(t.Expr)
}

// graphs are the panels that are not headings.
func (d dashboard) graphs() (graphs []panel) {
	for _, p := range d.Panels {
		if p.Type != "row" {
			graphs = append(graphs, p)
		}
	}
	return graphs
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// The dashboard fits on one screen, because people ignore a larger one. TestAlerts checks the
// queries of its panels.
func TestDashboard(t *testing.T) {
	graphs := readDashboard(t).graphs()
	if len(graphs) == 0 || len(graphs) > 12 {
		t.Errorf("%d panels, want 12 at most", len(graphs))
	}
	for _, p := range graphs {
		if p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %q has no title, no description or nothing to show", p.Title)
		}
		for _, target := range p.Targets {
			if _, err := promql.ParseExpr(target.query()); err != nil {
				t.Errorf("%s: %v", p.Title, err)
			}
			if !strings.Contains(target.Expr, `{job=~"$job"`) || !strings.Contains(target.LegendFormat, "{{job}}") {
				t.Errorf("%s: %s does not heed the choice of jobs, or its legend does not", p.Title, target.Expr)
			}
		}
	}
}
