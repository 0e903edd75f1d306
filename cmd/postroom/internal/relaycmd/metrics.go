package relaycmd

import (
	"log/slog"
	"net/http"

	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/postroom/postroom/cmd/postroom/internal/exposition"
)

// newMetrics returns a provider of meters, and a handler that serves the provider's metrics in the
// format of Prometheus.
func newMetrics(log *slog.Logger) (metric.MeterProvider, http.Handler) {
	reader := sdk.NewManualReader()
	return sdk.NewMeterProvider(sdk.WithReader(reader)), exposition.Handler(reader, log)
}
