// SPDX-License-Identifier: Apache-2.0

// Package metrics holds the agent's and the controller's Prometheus metrics, and the web server that serves /metrics,
// /healthz, /readyz and /loglevel. docs/reference/metrics.md has the table of the metrics; a test compares it.
//
// Events are counted where they happen, by a method here. Gauges are computed when the metrics are scraped.
package metrics

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics is the set of metrics of one program. A nil Metrics counts nothing.
type Metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.HistogramVec
	repairs  *prometheus.CounterVec
	leaks    *prometheus.CounterVec
	gcs      *prometheus.CounterVec
}

// New returns the metrics that every program has.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weft_cni_call_duration_seconds", Help: "Duration of CNI calls in seconds, by verb and CNI error code (0: success).",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"verb", "code"}),
		repairs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_repairs_total",
			Help: "Kernel objects of weft that were changed or removed externally and repaired, by kind.",
		}, []string{"kind"}),
		leaks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_gc_attachments_total", Help: "Attachments without a sandbox that garbage collection removed, by network.",
		}, []string{"network"}),
		gcs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_gc_runs_total",
			Help: "Garbage collections against the runtime's list of sandboxes, by outcome: done, refused (the list is implausible), failed.",
		}, []string{"outcome"}),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weft_build_info", Help: "Always 1; the label version is the version of weft.",
	}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	m.registry.MustRegister(m.calls, m.repairs, m.leaks, m.gcs, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Call records a finished CNI call.
func (m *Metrics) Call(verb string, code uint, took time.Duration) {
	if m == nil {
		return
	}
	switch verb {
	case "ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION":
	default:
		verb = "other" // a caller cannot create labels
	}
	m.calls.WithLabelValues(verb, strconv.FormatUint(uint64(code), 10)).Observe(took.Seconds())
}

// Repaired counts repaired objects. Each is named as a difference is: "route 10.0.0.0/8 …", "no addr …".
func (m *Metrics) Repaired(things []string) {
	if m == nil {
		return
	}
	for _, thing := range things {
		m.repairs.WithLabelValues(kindOf(thing)).Inc()
	}
}

// kindOf returns the kind of a repaired object: the first word of its difference.
func kindOf(thing string) string {
	word, _, _ := strings.Cut(strings.TrimPrefix(thing, "no "), " ")
	switch word {
	case "link", "addr", "route", "rule", "neigh", "fdb", "sysctl", "qdisc", "nft", "join":
		return word
	case "iptables", "ip6tables":
		return "iptables"
	}
	return "other"
}

// Collected counts attachments that garbage collection removed.
func (m *Metrics) Collected(network string, n int) {
	if m != nil && n > 0 {
		m.leaks.WithLabelValues(network).Add(float64(n))
	}
}

// GC records one garbage collection.
func (m *Metrics) GC(outcome string) {
	if m != nil {
		m.gcs.WithLabelValues(outcome).Inc()
	}
}

// Gauge adds a gauge whose value is read at each scrape.
func (m *Metrics) Gauge(name, help string, value func() float64) {
	if m != nil {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
}

// Counter adds a counter whose value is read at each scrape; it must never decrease.
func (m *Metrics) Counter(name, help string, value func() float64) {
	if m != nil {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value))
	}
}

// Histogram adds a histogram with those upper bounds, and returns the function that counts a value.
func (m *Metrics) Histogram(name, help string, buckets []float64) func(value float64) {
	if m == nil {
		return func(float64) {}
	}
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	m.registry.MustRegister(h)
	return h.Observe
}

// Gauges adds gauges with one label whose values are read at each scrape.
func (m *Metrics) Gauges(name, help, label string, values func() map[string]float64) {
	m.labeled(prometheus.GaugeValue, name, help, label, values)
}

// Counters adds counters with one label whose values are read at each scrape.
func (m *Metrics) Counters(name, help, label string, values func() map[string]float64) {
	m.labeled(prometheus.CounterValue, name, help, label, values)
}

func (m *Metrics) labeled(kind prometheus.ValueType, name, help, label string, values func() map[string]float64) {
	if m != nil {
		m.registry.MustRegister(&labeled{prometheus.NewDesc(name, help, []string{label}, nil), kind, values})
	}
}

// labeled is a metric with one label, whose values are read at each scrape.
type labeled struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	values func() map[string]float64
}

// Describe sends the metric's description.
func (l *labeled) Describe(out chan<- *prometheus.Desc) { out <- l.desc }

// Collect sends the metric's values.
func (l *labeled) Collect(out chan<- prometheus.Metric) {
	for label, value := range l.values() {
		out <- prometheus.MustNewConstMetric(l.desc, l.kind, value, label)
	}
}
