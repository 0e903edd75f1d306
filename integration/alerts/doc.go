// Package alerts evaluates docs/operations/alerts.yml and docs/operations/dashboard.json with
// Prometheus' own engine, on metrics of a relay and an inbox from OpenTelemetry's exporter. It
// is a module of its own, so that no other module depends on Prometheus.
package alerts
