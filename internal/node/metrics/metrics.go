// SPDX-License-Identifier: Apache-2.0

// Package metrics is what an agent tells Prometheus, and the small web server that tells it: /metrics, /healthz,
// /readyz and /loglevel. docs/kubernetes.md has the table of the metrics; a test compares it.
//
// Everything is counted where it happens by a method here; nothing is computed until somebody asks.
package metrics

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics counts. The nil Metrics counts nothing.
type Metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.HistogramVec
	repairs  *prometheus.CounterVec
	leaks    *prometheus.CounterVec
	gcs      *prometheus.CounterVec
}

// New makes the metrics of one agent.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weft_cni_call_seconds", Help: "How long CNI calls took, by verb and by the code they ended with (0: done).",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"verb", "code"}),
		repairs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_repairs_total",
			Help: "Things of weft's that others had changed in the kernel and that were brought back, by kind.",
		}, []string{"kind"}),
		leaks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_leaks_total", Help: "Attachments found without a sandbox and taken away, by network.",
		}, []string{"network"}),
		gcs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_gc_runs_total",
			Help: "Comparisons with the runtime's list of sandboxes, by outcome: done, refused (the list cannot be trusted), failed.",
		}, []string{"outcome"}),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weft_build_info", Help: "Always 1; the label says which weft this is.",
	}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	m.registry.MustRegister(m.calls, m.repairs, m.leaks, m.gcs, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Call tells of a CNI call that is over.
func (m *Metrics) Call(verb string, code uint, took time.Duration) {
	if m == nil {
		return
	}
	switch verb {
	case "ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION":
	default:
		verb = "other" // whatever a caller writes is no label
	}
	m.calls.WithLabelValues(verb, strconv.FormatUint(uint64(code), 10)).Observe(took.Seconds())
}

// Repaired tells of things that were brought back. Each is named as differences are: "route 10.0.0.0/8 …", "no addr …".
func (m *Metrics) Repaired(things []string) {
	if m == nil {
		return
	}
	for _, thing := range things {
		m.repairs.WithLabelValues(kindOf(thing)).Inc()
	}
}

// kindOf is the first word of what was repaired.
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

// Leak tells of attachments that nobody owned and that were taken away.
func (m *Metrics) Leak(network string, n int) {
	if m != nil && n > 0 {
		m.leaks.WithLabelValues(network).Add(float64(n))
	}
}

// GC tells of one comparison with the runtime's list.
func (m *Metrics) GC(outcome string) {
	if m != nil {
		m.gcs.WithLabelValues(outcome).Inc()
	}
}

// Gauge adds a value that is asked for when somebody reads the metrics.
func (m *Metrics) Gauge(name, help string, value func() float64) {
	if m != nil {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
}

// Gauges adds values by one label that are asked for when somebody reads the metrics.
func (m *Metrics) Gauges(name, help, label string, values func() map[string]float64) {
	if m != nil {
		m.registry.MustRegister(&gauges{prometheus.NewDesc(name, help, []string{label}, nil), values})
	}
}

// gauges are values by one label.
type gauges struct {
	desc   *prometheus.Desc
	values func() map[string]float64
}

// Describe says what they are.
func (g *gauges) Describe(out chan<- *prometheus.Desc) { out <- g.desc }

// Collect tells them.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	for label, value := range g.values() {
		out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, label)
	}
}
