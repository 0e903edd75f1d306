package main

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

// newMetrics returns a provider of meters and what serves its metrics in the
// format of Prometheus. A registry of its own: what else the process links has
// no say in it.
func newMetrics() (metric.MeterProvider, http.Handler, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		return nil, nil, fmt.Errorf("make metrics exporter: %w", err)
	}
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return sdk.NewMeterProvider(sdk.WithReader(reader)), handler, nil
}
