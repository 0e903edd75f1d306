// Package alerts evaluates docs/operations/alerts.yml and docs/operations/dashboard.json
// with Prometheus' own engine, on metrics that a relay and an inbox have told OpenTelemetry's
// exporter. It is a module of its own, so that nobody else depends on Prometheus.
package alerts
