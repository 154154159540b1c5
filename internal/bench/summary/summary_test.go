// SPDX-License-Identifier: Apache-2.0

package summary_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/bench"
	"github.com/weft-net/weft/internal/bench/path"
	"github.com/weft-net/weft/internal/bench/summary"
)

var update = flag.Bool("update", false, "write the golden files")

// example has a figure of each kind: within its limit and not, more and less than the peer, without a peer, a count.
func example(empty float64) summary.Report {
	return summary.Report{
		Host: "2 processors, Linux 6.18", Empty: empty,
		Rows: []summary.Row{
			{
				Group: summary.GroupCalls, Name: "run of weft-cni", Unit: "ms", N: 500, Weft: 1.2, Peer: 1, PeerName: "empty Go program",
				Ratio: 1.2, Limit: 1.3,
			},
			{
				Group: summary.GroupCalls, Name: "ADD of <pod>, 1 at a time", Unit: "ms", N: 100, Weft: 3.5, Peer: 52.3, PeerName: "plugins",
				Ratio: 3.5 / 52.3, Low: 3 / 52.3, High: 5 / 52.3, Limit: 1.0 / 27,
			},
			{Group: summary.GroupCounts, Name: "system calls", N: 10, Weft: 90, Limit: 100, Counted: true},
			{
				Group: summary.GroupPath, Name: "across host-gw, tcp rr", Unit: "1/s", N: 15, Weft: 20_000, Peer: 16_000,
				PeerName: "flannel", Ratio: 1.25, Low: 1.1, High: 1.4, Limit: 1.24, AtLeast: true,
			},
			{Group: summary.GroupRepairs, Name: "a route, 250 pods", Unit: "ms", N: 50, Weft: 105, Limit: 1000},
		},
		Notes: []string{"policy was not measured: no iptables"},
	}
}

// TestDocumented: the chart in docs/design/performance.md is that of its figures. Run with -update after a change of
// either.
func TestDocumented(t *testing.T) {
	const file = "../../../docs/images/performance.svg"
	b, err := os.ReadFile("testdata/documented.json")
	if err != nil {
		t.Fatal(err)
	}
	var r summary.Report
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, r.SVG(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != string(r.SVG()) {
		t.Errorf("%s differs from testdata/documented.json: %v", file, err)
	}
}

func TestGolden(t *testing.T) {
	for name, print := range map[string]func(w io.Writer) error{
		"report.txt": example(1).Text, "report.markdown": example(1).Markdown,
		"report.svg": func(w io.Writer) error { _, err := w.Write(example(1).SVG()); return err },
	} {
		var got bytes.Buffer
		if err := print(&got); err != nil {
			t.Fatal(err)
		}
		file := "testdata/" + name
		if *update {
			if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got.String() != string(want) {
			t.Errorf("%s differs (run with -update, and look at it):\n%s", file, got.String())
		}
	}
}

// TestSVG: the chart is well-formed, has all ratios and limits, and colors for both color schemes; a report without
// ratios also is a chart.
func TestSVG(t *testing.T) {
	for _, r := range []summary.Report{example(1), example(5), {}} {
		dec := xml.NewDecoder(bytes.NewReader(r.SVG()))
		limits, bars := 0, 0
		for {
			token, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			start, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			for _, a := range start.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("%s=%q", a.Name.Local, a.Value)
				}
				switch {
				case a.Name.Local != "class":
				case a.Value == "limit":
					limits++
				case slices.Contains([]string{"weft", "bad", "open"}, a.Value):
					bars++
				}
			}
		}
		want := 0
		for _, x := range r.Rows {
			if x.Ratio > 0 {
				want++
			}
		}
		if limits != want+1 || bars != want+3 { // and those of the legend
			t.Errorf("%d limits and %d bars, want %d and %d", limits, bars, want+1, want+3)
		}
		if !bytes.Contains(r.SVG(), []byte("prefers-color-scheme: dark")) {
			t.Error("no colors for a dark color scheme")
		}
	}
}

// TestVerdicts: where starting a process is slow limits of times do not count, those of counts do.
func TestVerdicts(t *testing.T) {
	quiet := []string{summary.Held, summary.Missed, summary.Held, summary.Held, summary.Held}
	busy := []string{summary.NotEvaluated, summary.NotEvaluated, summary.Held, summary.NotEvaluated, summary.NotEvaluated}
	for empty, want := range map[float64][]string{1: quiet, 1.5: quiet, 5: busy, 0: busy} {
		r := example(empty)
		for i, x := range r.Rows {
			if got := r.Verdict(x); got != want[i] {
				t.Errorf("an empty program at %g ms: %s: %s, want %s", empty, x.Name, got, want[i])
			}
		}
	}
}

// TestCollect: the figures of the measurements' reports, with their limits.
func TestCollect(t *testing.T) {
	var r summary.Report
	r.AddShim(bench.Report{Rows: []bench.Row{
		{Impl: "empty", Metric: "run", P50: 1, N: 90}, {Impl: "weft-cni", Metric: "run", P50: 1.25, N: 90, Unit: "ms"},
	}})
	cell := func(impl, metric string, p50 float64) bench.Row {
		return bench.Row{Impl: impl, Chain: "pod", Concurrency: 8, Pods: 10, Metric: metric, P50: p50, P95: 2 * p50, N: 100, Unit: "ms"}
	}
	r.AddCalls(bench.Report{
		Rows: []bench.Row{
			cell("weft-agent", "add", 10), cell("weft-standalone", "add", 120), cell("peer", "add", 400),
			cell("weft-agent", "add_syscalls_over_empty", 120), cell(bench.FloorAgent, "add", 8),
		},
		Ratios: []bench.Ratio{
			{Metric: "add", Chain: "pod", Concurrency: 8, Pods: 10, Peer: "peer", Weft: "weft-standalone", Ratio: 0.3},
			{Metric: "add", Chain: "pod", Concurrency: 8, Pods: 10, Peer: "peer", Weft: "weft-agent", Ratio: 0.025},
			{Metric: "add", Chain: "pod", Concurrency: 8, Pods: 10, Peer: "peer", Weft: bench.FloorAgent, Ratio: 0.02},
		},
		Notes: []string{"a note"},
	})
	r.AddNetworks(bench.Report{
		Rows: []bench.Row{
			{Impl: "weft-agent", Chain: "pod", Concurrency: 1, Metric: "add", P50: 4, P95: 5, N: 100, Unit: "ms"},
			{Impl: "weft-agent", Chain: "pod+7", Concurrency: 1, Metric: "add", P50: 6, P95: 10, N: 100, Unit: "ms"},
			{Impl: bench.FloorAgent, Chain: "pod", Concurrency: 1, Metric: "add", P50: 3, N: 100, Unit: "ms"},
			{Impl: bench.FloorAgent, Chain: "pod+7", Concurrency: 1, Metric: "add", P50: 4, N: 100, Unit: "ms"},
		},
		Ratios: []bench.Ratio{{
			Metric: "add", Chain: "pod+7", Concurrency: 1, Peer: "weft-agent pod", Weft: "weft-agent", Ratio: 1.5,
		}},
	}, "pod", 7)
	r.AddPath(path.Report{})
	r.AddRepair(bench.RepairReport{})
	if r.Empty != 1 || len(r.Rows) != 7 || len(r.Notes) != 1 {
		t.Fatalf("%+v", r)
	}
	add := r.Rows[1]
	if add.Ratio != 0.025 || add.Low != 10.0/800 || add.High != 20.0/400 || add.Limit != 1.0/33 || add.Peer != 400 || add.N != 100 {
		t.Errorf("%+v", add)
	}
	if x := r.Rows[3]; x.Name != "ADD of pod without an agent, 8 at a time" || x.Ratio != 0.3 || x.Limit != 0.2 || x.Weft != 120 {
		t.Errorf("%+v", x)
	}
	if x := r.Rows[5]; x.Name != "ADD of pod and 7 networks, 1 at a time" || x.Ratio != 1.5 || x.Low != 6.0/5 || x.High != 10.0/4 ||
		x.Weft != 6 || x.Peer != 4 || x.PeerName != "pod" || x.N != 100 {
		t.Errorf("%+v", x)
	}
	if x := r.Rows[2]; x.Name != "ADD of pod, the floor, 8 at a time" || x.Ratio != 0.02 || x.Weft != 8 || x.Limit != 0 {
		t.Errorf("%+v", x)
	}
	if x := r.Rows[6]; x.Weft != 5 || x.Peer != 4 || x.Ratio != 1.25 || x.Limit != 0 {
		t.Errorf("%+v", x)
	}
	for i, want := range []string{
		summary.Held, summary.Held, "", summary.Missed, summary.Missed, summary.Missed, "",
	} {
		if got := r.Verdict(r.Rows[i]); got != want {
			t.Errorf("%s: %s, want %s", r.Rows[i].Name, got, want)
		}
	}
}
