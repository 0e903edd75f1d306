package alerts

import (
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/postroom/postroom/internal/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

const (
	alertsFile    = "../../docs/operations/alerts.yml"
	dashboardFile = "../../docs/operations/dashboard.json"
)

var promql = parser.NewParser(parser.Options{})

func readAlerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	file, errs := rulefmt.Parse(text, false, model.LegacyValidation, promql, slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	var rules []rulefmt.Rule
	for _, group := range file.Groups {
		rules = append(rules, group.Rules...)
	}
	return rules
}

// set gives some series other values, one each 15 s, in Prometheus' notation: "1x130 2x29" is
// 131 times 1, then 30 times 2; "_" is no value. All other series keep theirs.
type set map[string]string

// Each of the series in fires alone makes the alert fire. The series in quiet almost do. Series
// have a value each 15 s for 40 minutes. The alert is evaluated at the last one.
var cases = map[string]struct{ fires, quiet []set }{
	"PostroomRelayBehind": {
		fires: []set{{"postroom_relay_lag_age_seconds": "0x150 31x9"}},
		quiet: []set{{"postroom_relay_lag_age_seconds": "30x159"}, {"postroom_relay_lag_age_seconds": "0x152 90x6"}},
	},
	"PostroomNoRelayLeader": {
		fires: []set{{"postroom_relay_leader": "1x153 0x5"}, {"postroom_relay_leader": "_x159"}},
		quiet: []set{{"postroom_relay_leader": "1x156 0x2"}, {"postroom_relay_leader": "1x20 0x138", `postroom_relay_paused{reason="operator"}`: "0x20 1x138"}, {`postroom_relay_leader{instance="a"}`: "1x20 0x138", `postroom_relay_leader{instance="b"}`: "0x20 1x138"}},
	},
	"PostroomTwoRelayLeaders": {
		fires: []set{{"postroom_relay_leader": "1x159"}},
		quiet: []set{{`postroom_relay_leader{instance="b"}`: "0x156 1x2"}},
	},
	"PostroomBrokerAway": {
		fires: []set{{`postroom_relay_paused{reason="broker"}`: "0x148 1x10"}},
		quiet: []set{{`postroom_relay_paused{reason="broker"}`: "0x155 1x3"}, {`postroom_relay_paused{reason="stream"}`: "1x159"}},
	},
	"PostroomStreamTakesNothing": {
		fires: []set{{`postroom_relay_paused{reason="stream"}`: "0x130 1x28"}},
		quiet: []set{{`postroom_relay_paused{reason="stream"}`: "0x145 1x13"}, {`postroom_relay_paused{reason="broker"}`: "1x159"}},
	},
	"PostroomBrokerLostEvents": {
		fires: []set{{"postroom_relay_data_lost_total": "_x131 1x28"}, {"postroom_relay_data_lost_total": "1x130 2x28"}},
		quiet: []set{{"postroom_relay_data_lost_total": "1x159"}},
	},
	"PostroomHandlerMissedEvents": {
		fires: []set{{"postroom_inbox_data_lost_total": "_x131 1x28"}, {"postroom_inbox_data_lost_total": "1x130 2x28"}},
		quiet: []set{{"postroom_inbox_data_lost_total": "1x159"}},
	},
	"PostroomCheckFailed": {
		fires: []set{{`postroom_check_failed{check="streams"}`: "1x159"}, {`postroom_check_failed{check="consumer"}`: "1x159"}},
		quiet: []set{{"postroom_check_failed": "0x125 1x33"}},
	},
	"PostroomHandlerStalled": {
		fires: []set{{`postroom_inbox_pending{handler="billing"}`: "5x159"}},
		quiet: []set{
			{`postroom_inbox_pending{handler="billing"}`: "5x159", `postroom_inbox_deliveries_total{handler="billing",outcome="done"}`: "0+1x159"},
			{`postroom_inbox_pending{handler="billing"}`: "5x159", `postroom_inbox_deliveries_total{handler="billing",outcome="done"}`: "0x130 9x28"},
			{`postroom_inbox_pending{handler="billing"}`: "5x159", `postroom_inbox_paused{handler="billing",reason="operator"}`: "1x159"},
			{`postroom_inbox_pending{handler="billing"}`: "5x159", `postroom_inbox_paused{handler="billing",reason="broker"}`: "1x159"},
		},
	},
	"PostroomCriticalTime": {
		fires: []set{{`postroom_inbox_critical_time_seconds_bucket{handler="billing",le=~"300|600|.Inf"}`: "0+1x159"}},
		quiet: []set{{`postroom_inbox_critical_time_seconds_bucket{handler="billing"}`: "0+1x159"}},
	},
	"PostroomRetriesLate": {
		fires: []set{{`postroom_held_overdue_age_seconds{handler="billing"}`: "61x159"}, {`postroom_held_overdue_age_seconds{handler="outbox"}`: "61x159"}},
		quiet: []set{{"postroom_held_overdue_age_seconds": "60x159"}, {
			`postroom_held_overdue_age_seconds{handler="billing"}`: "0x20 61x138", `postroom_inbox_paused{handler="billing",reason="operator"}`: "0x20 1x138",
		}},
	},
	"PostroomHandlerPaused": {
		fires: []set{{`postroom_inbox_paused{handler="billing",reason="failures"}`: "0x130 1x28"}},
		quiet: []set{{`postroom_inbox_paused{handler="billing",reason="failures"}`: "0x155 1x3"}, {`postroom_inbox_paused{handler="billing",reason="operator"}`: "1x159"}},
	},
	"PostroomRetrying": {
		fires: []set{{`postroom_held_oldest_age_seconds{handler="billing",reason="retry"}`: "901x159"}, {`postroom_held_oldest_age_seconds{handler="outbox",reason="retry"}`: "901x159"}},
		quiet: []set{
			{`postroom_held_oldest_age_seconds{handler="billing",reason="retry"}`: "900x159"},
			{`postroom_held_oldest_age_seconds{handler="billing",reason="dead"}`: "901x159"},
			{`postroom_held_oldest_age_seconds{handler="billing",reason="retry"}`: "901x159", `postroom_inbox_paused{handler="billing",reason="operator"}`: "1x159"},
		},
	},
	"PostroomManyRetrying": {
		fires: []set{{`postroom_held_events{handler="billing",reason="retry"}`: "101x159", `postroom_held_oldest_age_seconds{handler="billing",reason="retry"}`: "901x159"}},
		quiet: []set{
			{`postroom_held_events{handler="billing",reason="retry"}`: "100x159", `postroom_held_oldest_age_seconds{handler="billing",reason="retry"}`: "901x159"},
			{`postroom_held_events{handler="billing",reason="retry"}`: "101x159", `postroom_held_oldest_age_seconds{handler="billing",reason="retry"}`: "900x159"},
		},
	},
	"PostroomKeyBlocked": {
		fires: []set{{`postroom_held_keys{handler="outbox"}`: "1x159", `postroom_held_oldest_age_seconds{handler="outbox",reason="key"}`: "901x159"}},
		quiet: []set{
			{`postroom_held_keys{handler="outbox"}`: "1x159", `postroom_held_oldest_age_seconds{handler="outbox",reason="key"}`: "900x159"},
			{`postroom_held_keys{handler="outbox"}`: "1x159", `postroom_held_oldest_age_seconds{handler="billing",reason="key"}`: "901x159"},
		},
	},
	"PostroomDeadLetters": {
		fires: []set{{"postroom_dead_events_total": "_x131 1x28"}, {"postroom_dead_events_total": "1x130 2x28"}, {"postroom_dead_events_total": "9x130 1x28"}},
		quiet: []set{{"postroom_dead_events_total": "1x159"}, {"postroom_dead_events_total": "1x60 2x98"}},
	},
	"PostroomManyDeadLetters": {
		fires: []set{{"postroom_dead_events_total": "_x131 101x28"}, {"postroom_dead_events_total": "5x130 120x28"}},
		quiet: []set{{"postroom_dead_events_total": "_x131 100x28"}, {"postroom_dead_events_total": "500x159"}},
	},
	"PostroomDeadLettersOld": {
		fires: []set{{`postroom_held_oldest_age_seconds{handler="billing",reason="dead"}`: "86401x159"}},
		quiet: []set{{`postroom_held_oldest_age_seconds{handler="billing",reason="dead"}`: "86400x159"}},
	},
	"PostroomSagaStuck": {
		fires: []set{{`postroom_saga_instances{saga="checkout",state="stuck"}`: "0x130 1x28"}},
		quiet: []set{{`postroom_saga_instances{saga="checkout",state="stuck"}`: "0x145 1x13"}, {`postroom_saga_instances{saga="checkout",state="running"}`: "9x159"}},
	},
	"PostroomGaugesOld": {
		fires: []set{{`postroom_measured_age_seconds{lane="inbox"}`: "301x159"}},
		quiet: []set{{`postroom_measured_age_seconds{lane="inbox"}`: "300x159"}},
	},
	"PostroomLongTransaction": {
		fires: []set{{"postroom_relay_oldest_transaction_age_seconds": "3601x159"}},
		quiet: []set{{"postroom_relay_oldest_transaction_age_seconds": "3600x159"}},
	},
	"PostroomRetentionLate": {
		fires: []set{{"postroom_retention_lag_age_seconds": "21601x159"}},
		quiet: []set{{"postroom_retention_lag_age_seconds": "21600x159"}},
	},
}

// Each alert fires for its cause, and only after the cause has lasted. None fires while all is
// well.
func TestAlerts(t *testing.T) {
	observed := runShop(t)
	rules := readAlerts(t)
	seen := make(map[string]bool)
	for _, rule := range rules {
		t.Run(rule.Alert, func(t *testing.T) {
			seen[rule.Alert] = true
			if severity := rule.Labels["severity"]; !slices.Contains([]string{"page", "ticket", "warn"}, severity) {
				t.Errorf("severity is %q", severity)
			}
			for _, note := range []string{"summary", "action"} {
				if strings.TrimSpace(rule.Annotations[note]) == "" {
					t.Errorf("it has no %s", note)
				}
			}
			observed.after.holds(t, rule.Expr)
			if observed.well.fires(t, rule, nil) {
				t.Error("it fires while all is well")
			}
			tt, ok := cases[rule.Alert]
			if !ok {
				t.Fatal("nothing here says when it fires")
			}
			for _, change := range tt.fires {
				if !observed.after.fires(t, rule, change) {
					t.Errorf("it does not fire for %v", change)
				}
			}
			for _, change := range tt.quiet {
				if observed.after.fires(t, rule, change) {
					t.Errorf("it fires for %v", change)
				}
			}
		})
	}
	for name := range cases {
		if !seen[name] {
			t.Errorf("there is no alert %s", name)
		}
	}
}

// lasts returns for how many of the last values an alert's expression has to be true.
func lasts(rule rulefmt.Rule) int { return int(time.Duration(rule.For)/step) + 1 }
