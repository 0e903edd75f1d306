// Package exposition serves metrics of OpenTelemetry in the text format of Prometheus,
// version 0.0.4.
//
// It names and writes them as OpenTelemetry's exporter for Prometheus does without scope
// labels and without target_info; a test compares the two. The exporter itself links
// protobuf and a registry of collectors: an eighth of the program's size, for counters,
// gauges and histograms whose names and units are all ours.
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

// ContentType is the media type of what Handler answers.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Handler collects what reader reads at each request, and answers it. If a part cannot
// be collected, it answers 500, and log says why: a page that lacks metrics would look
// like a system without them.
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

// write writes all metrics, by name. Exponential histograms and summaries are left out:
// Postroom has none.
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

// family is a metric with all its series.
type family struct {
	name, help, kind string
	series           []series
}

// series is the lines of one set of attributes.
type series struct {
	labels string // name="value",…
	lines  []line
}

// line is a sample: the family's name with a suffix, the series' labels and perhaps the
// bound of a bucket.
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

// nameOf returns the name of a metric in Prometheus: with its unit, and with _total if it
// is a counter. A unit in braces says what is counted, and is no part of the name.
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

// word replaces what no name of Prometheus may contain.
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

// buckets returns the lines of histograms. Buckets of Prometheus count all that is below
// their bound, those of OpenTelemetry what is between two of them.
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

// labelsOf returns attributes as labels, in the order of their names.
func labelsOf(attributes attribute.Set) string {
	var labels []string
	for _, a := range attributes.ToSlice() {
		labels = append(labels, word(string(a.Key))+`="`+labelValue.Replace(a.Value.String())+`"`)
	}
	slices.Sort(labels)
	return strings.Join(labels, ",")
}

// number returns a number as Prometheus reads it.
func number(n float64) string {
	switch {
	case math.IsInf(n, 1):
		return "+Inf"
	case math.IsInf(n, -1):
		return "-Inf"
	}
	return strconv.FormatFloat(n, 'g', -1, 64)
}
