// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/weft-net/weft/internal/bench/rounds"
	"github.com/weft-net/weft/internal/flow"
)

// Connects is the rate of connections of a level.
type Connects struct {
	Level string `json:"level"`
	N     int    `json:"n"`
	// Median is of connections a second.
	Median float64 `json:"median"`
	// Ratio is the median of the rounds' ratios to the level off, From and To its confidence interval of 95 %.
	Ratio float64 `json:"ratio"`
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	// CPU is what a connection costs client, server and agent, in microseconds of CPU time; Agent is the agent's part, and
	// the ratio that of CPU to the level off.
	CPU      float64 `json:"cpu"`
	Agent    float64 `json:"agent"`
	CPURatio float64 `json:"cpuRatio"`
	CPUFrom  float64 `json:"cpuFrom"`
	CPUTo    float64 `json:"cpuTo"`
}

// Cost is what an agent uses at a rate of flows.
type Cost struct {
	Level string `json:"level"`
	Rate  int    `json:"rate"`
	N     int    `json:"n"`
	// Made is how many flows there were a second, Lost how many of all rounds were lost.
	Made float64 `json:"made"`
	Lost uint64  `json:"lost"`
	// CPU is in milliseconds a second, RSS in MiB; the ratios are to the level off in the same round.
	CPU      float64 `json:"cpu"`
	CPUMin   float64 `json:"cpuMin"`
	CPUMax   float64 `json:"cpuMax"`
	RSS      float64 `json:"rss"`
	RSSMax   float64 `json:"rssMax"`
	RSSRatio float64 `json:"rssRatio"`
}

// Lines is the time from a packet to its line, in milliseconds.
type Lines struct {
	Rate int     `json:"rate"`
	N    int     `json:"n"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	Max  float64 `json:"max"`
}

// Report is the result of Run.
type Report struct {
	// Off is what an agent of level off has for the observation.
	Off      string     `json:"off"`
	Connects []Connects `json:"connects,omitempty"`
	Costs    []Cost     `json:"costs,omitempty"`
	Lines    []Lines    `json:"lines,omitempty"`
	Notes    []string   `json:"notes"`
}

func (b *bench) report() Report {
	r := Report{Off: b.off, Notes: []string{
		"one node, whose agent is replaced by one of the next level before each measurement; every round has a new order",
		"ratios are the medians of the rounds' ratios to the level off, with a confidence interval of 95 %",
		"CPU time is user and system time of client, server and agent, with the kernel's work for packets that it does in theirs",
		"a client connects again and again, and resets each connection; client and server are pinned to a CPU each",
	}}
	for _, level := range levels() {
		if v := b.connects[level]; len(v) > 0 {
			c := Connects{Level: level, N: len(v)}
			c.Median, _, _ = rounds.Spread(v)
			c.Ratio, c.From, c.To = rounds.Interval(rounds.Quotients(v, b.connects[flow.LevelOff]))
			c.CPU, _, _ = rounds.Spread(b.cpu[level])
			c.Agent, _, _ = rounds.Spread(b.agent[level])
			c.CPURatio, c.CPUFrom, c.CPUTo = rounds.Interval(rounds.Quotients(b.cpu[level], b.cpu[flow.LevelOff]))
			r.Connects = append(r.Connects, c)
		}
	}
	for _, rate := range b.cfg.Rates {
		for _, level := range []string{flow.LevelOff, flow.LevelDenied, flow.LevelFlows} {
			k, off := b.costs[cell{level, rate}], b.costs[cell{flow.LevelOff, rate}]
			if k == nil {
				continue
			}
			c := Cost{Level: level, Rate: rate, N: len(k.cpu), Lost: k.lost}
			c.CPU, c.CPUMin, c.CPUMax = rounds.Spread(k.cpu)
			c.RSS, _, c.RSSMax = rounds.Spread(k.rss)
			c.Made, _, _ = rounds.Spread(k.made)
			c.RSSRatio, _, _ = rounds.Spread(rounds.Quotients(k.rss, off.rss))
			r.Costs = append(r.Costs, c)
		}
	}
	for _, rate := range []int{0, 1000} {
		if v := slices.Sorted(slices.Values(b.lines[rate])); len(v) > 0 {
			r.Lines = append(r.Lines, Lines{
				Rate: rate, N: len(v), P50: v[len(v)/2], P95: v[min(len(v)-1, len(v)*95/100)], Max: v[len(v)-1],
			})
		}
	}
	return r
}

// Text prints tables.
func (r Report) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "level off: %s\n\n", r.Off)
	if len(r.Connects) > 0 {
		fmt.Fprintln(t, "LEVEL\tCONNECTIONS/S\tRATIO TO OFF\tCPU µS\tOF THE AGENT\tRATIO TO OFF\tN")
		for _, c := range r.Connects {
			fmt.Fprintf(t, "%s\t%.0f\t%.3f (%.3f–%.3f)\t%.1f\t%.1f\t%.3f (%.3f–%.3f)\t%d\n",
				c.Level, c.Median, c.Ratio, c.From, c.To, c.CPU, c.Agent, c.CPURatio, c.CPUFrom, c.CPUTo, c.N)
		}
		fmt.Fprintln(t)
	}
	if len(r.Costs) > 0 {
		fmt.Fprintln(t, "FLOWS/S\tLEVEL\tMADE/S\tLOST\tCPU MS/S\tMEMORY MIB\tRATIO TO OFF\tN")
		for _, c := range r.Costs {
			fmt.Fprintf(t, "%d\t%s\t%.0f\t%d\t%.1f (%.1f–%.1f)\t%.1f\t%.2f\t%d\n",
				c.Rate, c.Level, c.Made, c.Lost, c.CPU, c.CPUMin, c.CPUMax, c.RSS, c.RSSRatio, c.N)
		}
		fmt.Fprintln(t)
	}
	if len(r.Lines) > 0 {
		fmt.Fprintln(t, "OTHER FLOWS/S\tPACKET TO LINE MS P50\tP95\tMAX\tN")
		for _, l := range r.Lines {
			fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.0f\t%d\n", strconv.Itoa(l.Rate), l.P50, l.P95, l.Max, l.N)
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, note := range r.Notes {
		if _, err := fmt.Fprintln(w, "note:", note); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return nil
}
