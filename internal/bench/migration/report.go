// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/weft-net/weft/internal/bench/rounds"
	"github.com/weft-net/weft/internal/vm/downtime"
)

// Row is one duration that was measured of each migration, in milliseconds.
type Row struct {
	What   string  `json:"what"`
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Report is the result of Run.
type Report struct {
	Rows []Row `json:"rows"`
	// Resets is the number of connections that were closed: Run fails with the first.
	Resets int      `json:"resets"`
	Notes  []string `json:"notes"`
}

func newReport(cfg Config, gaps []downtime.Measurement) Report {
	r := Report{Notes: []string{
		"first packet: from the hypervisor's RESUME event to the VM's first packet at the peer, of a flow of one packet every 5 ms",
		"blackout: from the last packet before to that one; answers: the longest time between two responses on a TCP connection, of one every 10 ms; stream: the longest time between two lines on another TCP connection, on which only the VM sends",
		"the VM is emulated (TCG), encapsulation " + cfg.Encapsulation + ", binding " +
			string(cfg.Binding) + "; the hypervisor's downtime is included in blackout, answers and stream",
	}}
	for _, of := range []struct {
		what string
		take func(downtime.Measurement) time.Duration
	}{
		{"first packet", func(g downtime.Measurement) time.Duration { return g.FirstPacket }},
		{"blackout", func(g downtime.Measurement) time.Duration { return g.Blackout }},
		{"answers", func(g downtime.Measurement) time.Duration { return g.Replies }},
		{"stream", func(g downtime.Measurement) time.Duration { return g.Stream }},
	} {
		var all []float64
		for _, g := range gaps {
			all = append(all, float64(of.take(g))/float64(time.Millisecond))
		}
		row := Row{What: of.what, N: len(all)}
		row.Median, row.Min, row.Max = rounds.Spread(all)
		r.Rows = append(r.Rows, row)
	}
	lost := 0
	for _, g := range gaps {
		lost += g.Lost
	}
	r.Notes = append(r.Notes, fmt.Sprintf("%d packets were lost in %d migrations", lost, len(gaps)))
	return r
}

// Text prints the report as a table.
func (r Report) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "GAP\tMEDIAN\tMIN\tMAX\tUNIT\tN")
	for _, x := range r.Rows {
		fmt.Fprintf(t, "%s\t%.4g\t%.4g\t%.4g\tms\t%d\n", x.What, x.Median, x.Min, x.Max, x.N)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	fmt.Fprintln(w, "resets:", r.Resets)
	for _, note := range r.Notes {
		fmt.Fprintln(w, "note:", note)
	}
	return nil
}
