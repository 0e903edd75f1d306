// Package alerts evaluates docs/operations/alerts.yml and docs/operations/dashboard.json with
// Prometheus' own engine. The metrics come from a relay and an inbox, through OpenTelemetry's
// exporter. The package is a module of its own, so that no other module depends on Prometheus.
package alerts
