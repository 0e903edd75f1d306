// Package exposition serves metrics of OpenTelemetry in version 0.0.4 of the text format of
// Prometheus.
//
// It names and writes metrics as OpenTelemetry's exporter for Prometheus does if that exporter's
// scope labels and target_info are switched off. A test compares the two. The exporter contains
// protobuf and a registry of collectors, which would be an eighth of the program's size. Postroom
// does not need them: it has only counters, gauges and histograms, and chooses their names and
// units.
package exposition

import (
	"bytes"
	"cmp"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// ContentType is the media type of the metrics page.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Handler reads all metrics at each request and sends them. If it cannot collect one of them, it
// sends status 500 and logs why. It never sends an incomplete page, because a reader would think
// that the system does not have the missing metrics.
func Handler(reader *sdk.ManualReader, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var all metricdata.ResourceMetrics
		if err := reader.Collect(r.Context(), &all); err != nil {
			log.ErrorContext(r.Context(), "metrics cannot be collected", "error", err)
			http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
			return
		}
		var page bytes.Buffer
		write(&page, all)
		w.Header().Set("Content-Type", ContentType)
		if _, err := page.WriteTo(w); err != nil {
			log.DebugContext(r.Context(), "metrics were not sent", "error", err)
		}
	})
}

// write prints all metrics in the order of their names. It leaves out exponential histograms and
// summaries, because Postroom has none.
func write(page *bytes.Buffer, all metricdata.ResourceMetrics) {
	var families []family
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if f, ok := familyOf(m); ok {
				families = append(families, f)
			}
		}
	}
	slices.SortFunc(families, func(a, b family) int { return cmp.Compare(a.name, b.name) })
	for _, f := range families {
		f.write(page)
	}
}

// A family is a metric with all its series.
type family struct {
	name, help, kind string
	series           []series
}

// A series has the lines of one set of attributes.
type series struct {
	labels string // name="value",…
	lines  []line
}

// A line is one sample. The line's name is the family's name with a suffix. The line has the labels
// of the series. A line of a bucket also has the bound of the bucket.
type line struct {
	suffix, bound string
	value         string
}

func familyOf(m metricdata.Metrics) (family, bool) {
	f := family{help: m.Description}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		f.kind, f.series = kindOf(data.IsMonotonic), samples(data.DataPoints)
	case metricdata.Sum[float64]:
		f.kind, f.series = kindOf(data.IsMonotonic), samples(data.DataPoints)
	case metricdata.Gauge[int64]:
		f.kind, f.series = "gauge", samples(data.DataPoints)
	case metricdata.Gauge[float64]:
		f.kind, f.series = "gauge", samples(data.DataPoints)
	case metricdata.Histogram[int64]:
		f.kind, f.series = "histogram", buckets(data.DataPoints)
	case metricdata.Histogram[float64]:
		f.kind, f.series = "histogram", buckets(data.DataPoints)
	default:
		return family{}, false
	}
	f.name = nameOf(m.Name, m.Unit, f.kind)
	slices.SortFunc(f.series, func(a, b series) int { return cmp.Compare(a.labels, b.labels) })
	return f, len(f.series) > 0
}

func kindOf(monotonic bool) string {
	if monotonic {
		return "counter"
	}
	return "gauge"
}

// nameOf returns the name of a metric in Prometheus: with its unit, and with _total if it is a
// counter. A unit in braces, such as {event}, does not become a part of the name.
func nameOf(name, unit, kind string) string {
	name = word(name)
	switch {
	case unit == "s":
		name += "_seconds"
	case unit == "By":
		name += "_bytes"
	case unit == "1" && kind == "gauge":
		name += "_ratio"
	}
	if kind == "counter" {
		name += "_total"
	}
	return name
}

// word puts '_' in place of each character that a name of Prometheus must not contain.
func word(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

// samples returns a line for each point.
func samples[N int64 | float64](points []metricdata.DataPoint[N]) []series {
	all := make([]series, 0, len(points))
	for _, p := range points {
		all = append(all, series{labelsOf(p.Attributes), []line{{value: number(float64(p.Value))}}})
	}
	return all
}

// buckets returns the lines of histograms. A bucket of Prometheus counts all values up to its
// bound. A bucket of OpenTelemetry counts only the values between two bounds.
func buckets[N int64 | float64](points []metricdata.HistogramDataPoint[N]) []series {
	all := make([]series, 0, len(points))
	for _, p := range points {
		s, below := series{labels: labelsOf(p.Attributes)}, uint64(0)
		for i, bound := range p.Bounds {
			below += p.BucketCounts[i]
			s.lines = append(s.lines, line{"_bucket", number(bound), strconv.FormatUint(below, 10)})
		}
		count := strconv.FormatUint(p.Count, 10)
		s.lines = append(s.lines, line{"_bucket", "+Inf", count},
			line{suffix: "_sum", value: number(float64(p.Sum))}, line{suffix: "_count", value: count})
		all = append(all, s)
	}
	return all
}

func (f family) write(page *bytes.Buffer) {
	page.WriteString("# HELP " + f.name + " " + helpText.Replace(f.help) + "\n# TYPE " + f.name + " " + f.kind + "\n")
	for _, s := range f.series {
		for _, l := range s.lines {
			labels := s.labels
			if l.bound != "" {
				if labels != "" {
					labels += ","
				}
				labels += `le="` + l.bound + `"`
			}
			if labels != "" {
				labels = "{" + labels + "}"
			}
			page.WriteString(f.name + l.suffix + labels + " " + l.value + "\n")
		}
	}
}

var (
	helpText   = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelValue = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// labelsOf returns attributes as labels, sorted by name.
func labelsOf(attributes attribute.Set) string {
	var labels []string
	for _, a := range attributes.ToSlice() {
		labels = append(labels, word(string(a.Key))+`="`+labelValue.Replace(a.Value.String())+`"`)
	}
	slices.Sort(labels)
	return strings.Join(labels, ",")
}

// number formats a number as Prometheus reads it.
func number(n float64) string {
	switch {
	case math.IsInf(n, 1):
		return "+Inf"
	case math.IsInf(n, -1):
		return "-Inf"
	}
	return strconv.FormatFloat(n, 'g', -1, 64)
}
