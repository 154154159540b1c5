// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/weft-net/weft/internal/bench/path"
	"github.com/weft-net/weft/internal/bench/rounds"
)

// Row is one test of one design.
type Row struct {
	Design string  `json:"design"`
	Test   string  `json:"test"`
	Unit   string  `json:"unit"`
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Rate is the median number of frames that arrived per second.
	Rate float64 `json:"rate,omitempty"`
	// Base is the ratio to bridge, Masquerade the ratio to masquerade, Pod the ratio to the plain pod: medians of the
	// rounds' ratios, with minimum and maximum. All are ratios of durations, so less is better. 0 if there is none.
	Base          float64 `json:"base,omitempty"`
	BaseMin       float64 `json:"baseMin,omitempty"`
	BaseMax       float64 `json:"baseMax,omitempty"`
	Masquerade    float64 `json:"masquerade,omitempty"`
	MasqueradeMin float64 `json:"masqueradeMin,omitempty"`
	MasqueradeMax float64 `json:"masqueradeMax,omitempty"`
	Pod           float64 `json:"pod,omitempty"`
}

// Report is the result of Run.
type Report struct {
	Rows  []Row    `json:"rows"`
	Notes []string `json:"notes"`
}

func (b *bench) report() Report {
	r := Report{Notes: append(b.notes,
		"ratios are of the time per frame, request, connection or bit: less is better; medians of the rounds' ratios, with minimum and maximum",
		"frames: 64 bytes, one system call each, on one CPU; the time per frame is the CPU time of its whole path",
		"requests and connections: the rate computed from the median duration",
		"in: from the peer to the VM; older: checksums by the kernel, as with KubeVirt until 1.7")}
	for _, test := range append(slices.Clone(b.cfg.Tests), testTap, testFirst, testRSS) {
		for _, name := range b.cfg.Designs {
			k := key{name, test}
			v := b.times(k)
			if len(v) == 0 {
				continue
			}
			row := Row{Design: name, Test: test, Unit: unit(test), N: len(v)}
			row.Median, row.Min, row.Max = rounds.Spread(b.values[k])
			row.Rate, _, _ = rounds.Spread(b.rates[k])
			row.Base, row.BaseMin, row.BaseMax = rounds.Spread(rounds.Quotients(v, b.times(key{Base, test})))
			peer := b.times(key{masquerade, test})
			row.Masquerade, row.MasqueradeMin, row.MasqueradeMax = rounds.Spread(rounds.Quotients(v, peer))
			row.Pod, _, _ = rounds.Spread(rounds.Quotients(v, b.times(key{plainPod, test})))
			if test == testRSS {
				row.Base, row.Masquerade = 0, 0
			}
			r.Rows = append(r.Rows, row)
		}
	}
	return r
}

func unit(test string) string {
	switch {
	case isFrames(test):
		return "µs"
	case isStart(test):
		return "ms"
	case test == testRSS:
		return "MiB"
	case strings.HasPrefix(test, path.TestStream):
		return "Gbit/s"
	}
	return "1/s"
}

func isFrames(test string) bool { return strings.HasPrefix(test, "frames") }

func isStart(test string) bool { return test == testTap || test == testFirst }

// times returns the values as durations.
func (b *bench) times(k key) []float64 {
	v := b.values[k]
	if isFrames(k.test) || isStart(k.test) {
		return v
	}
	out := make([]float64, len(v))
	for i := range v {
		out[i] = 1 / v[i]
	}
	return out
}

// Text prints the report as a table.
func (r Report) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TEST\tDESIGN\tMEDIAN\tMIN\tMAX\tUNIT\tFRAMES/S\tVS BRIDGE\tVS MASQUERADE\tVS POD\tN")
	for _, x := range r.Rows {
		rate := ""
		if x.Rate > 0 {
			rate = fmt.Sprintf("%.4g", x.Rate)
		}
		fmt.Fprintf(t, "%s\t%s\t%.4g\t%.4g\t%.4g\t%s\t%s\t%s\t%s\t%s\t%d\n", x.Test, x.Design, x.Median, x.Min, x.Max,
			x.Unit, rate,
			rounds.Ratio(x.Base, x.BaseMin, x.BaseMax), rounds.Ratio(x.Masquerade, x.MasqueradeMin, x.MasqueradeMax),
			rounds.Ratio(x.Pod, 0, 0), x.N)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, "note:", note)
	}
	return nil
}
