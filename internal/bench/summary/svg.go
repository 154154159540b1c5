// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// The chart's measures, in pixels.
const (
	chartWidth  = 760
	labelWidth  = 300
	valueWidth  = 70
	rowHeight   = 24
	groupHeight = 34
	barHeight   = 12
	topHeight   = 54
	footHeight  = 36
)

const style = `<style>
text { fill: #1f2328 } .soft { fill: #57606a } .line { stroke: #8c959f } .peer { stroke: #57606a; stroke-width: 1.5 }
.weft { fill: #1f6fb2 } .spread { stroke: #0a3f6b; stroke-width: 1.5 } .limit { stroke: #b2651f; stroke-width: 2.5 } .bad { fill: #b23a48 } .open { fill: #8c959f }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .soft { fill: #9da7b1 } .line { stroke: #3d444d } .peer { stroke: #9da7b1 }
.weft { fill: #58a6ff } .spread { stroke: #cfe8ff } .limit { stroke: #e3a15a } .bad { fill: #f28b94 } .open { fill: #6e7781 } }
</style>
`

// SVG draws the ratios: for each a bar from the peer, which is 1, to weft, and the limit, on a logarithmic scale. Its
// colors follow the reader's color scheme. Figures without a peer are in the table only.
func (r Report) SVG() []byte {
	rows := make([]Row, 0, len(r.Rows))
	low, high, groups := 0.5, 2.0, 0
	for i, x := range r.Rows {
		if x.Ratio <= 0 {
			continue
		}
		if len(rows) == 0 || rows[len(rows)-1].Group != r.Rows[i].Group {
			groups++
		}
		rows = append(rows, x)
		for _, v := range []float64{x.Ratio, x.Limit, x.Low, x.High} {
			if v > 0 {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	height := topHeight + groups*groupHeight + len(rows)*rowHeight + footHeight
	from, to := math.Log(low/1.15), math.Log(high*1.15)
	at := func(v float64) float64 {
		return labelWidth + (math.Log(v)-from)/(to-from)*(chartWidth-labelWidth-valueWidth)
	}
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `+
		`font-family="system-ui, sans-serif" font-size="13">`+"\n", chartWidth, height, chartWidth, height)
	fmt.Fprintf(&s, "<title>weft compared with its peers, which are 1, and the limits</title>\n%s", style)
	legend(&s)
	y := topHeight
	bottom := height - footHeight
	for _, tick := range ticks(low, high) {
		x := at(tick)
		fmt.Fprintf(&s, `<line class="line" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`+"\n", x, topHeight, x, bottom)
		fmt.Fprintf(&s, `<text class="soft" x="%.1f" y="%d" text-anchor="middle" font-size="11">%s</text>`+"\n", x, bottom+16,
			tickText(tick))
	}
	group := ""
	for _, x := range rows {
		if x.Group != group {
			group = x.Group
			y += groupHeight
			fmt.Fprintf(&s, `<text x="10" y="%d" font-weight="600">%s</text>`+"\n", y-10, escape(r.heading(group)))
		}
		r.bar(&s, x, y, at)
		y += rowHeight
	}
	fmt.Fprintf(&s, `<line class="peer" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`+"\n", at(1), topHeight, at(1), bottom)
	s.WriteString("</svg>\n")
	return []byte(s.String())
}

// bar draws a figure.
func (r Report) bar(s *strings.Builder, x Row, y int, at func(float64) float64) {
	middle := y + rowHeight/2
	fmt.Fprintf(s, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", labelWidth-8, middle+4, escape(x.Name))
	begin, end := min(at(1), at(x.Ratio)), max(at(1), at(x.Ratio))
	class := "weft"
	switch r.Verdict(x) {
	case Missed:
		class = "bad"
	case NotEvaluated: // it may be missed
		class = "open"
	}
	fmt.Fprintf(s, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d" rx="2"/>`+"\n", class, begin, middle-barHeight/2,
		max(1, end-begin), barHeight)
	if x.Low > 0 && x.High > 0 {
		fmt.Fprintf(s, `<line class="spread" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`+"\n", at(x.Low), middle, at(x.High), middle)
	}
	if x.Limit > 0 {
		fmt.Fprintf(s, `<line class="limit" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`+"\n", at(x.Limit), middle-barHeight, at(x.Limit),
			middle+barHeight)
	}
	fmt.Fprintf(s, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", chartWidth-10, middle+4, Ratio(x.Ratio))
}

func legend(s *strings.Builder) {
	fmt.Fprintf(s, `<rect class="weft" x="10" y="14" width="24" height="%d" rx="2"/><text x="40" y="25">weft</text>`+"\n", barHeight)
	fmt.Fprintln(s, `<line class="peer" x1="100" y1="10" x2="100" y2="30"/><text x="108" y="25">peer = 1</text>`)
	fmt.Fprintln(s, `<line class="limit" x1="190" y1="10" x2="190" y2="30"/><text x="198" y="25">limit</text>`)
	fmt.Fprintln(s, `<rect class="bad" x="250" y="14" width="24" height="12" rx="2"/><text x="280" y="25">limit missed</text>`)
	fmt.Fprintln(s, `<rect class="open" x="370" y="14" width="24" height="12" rx="2"/><text x="400" y="25">not evaluated</text>`)
	fmt.Fprintln(s, `<text class="soft" x="505" y="25" font-size="11">times: less is better; rates: more is better</text>`)
}

// ticks returns values of the scale: powers of two.
func ticks(low, high float64) []float64 {
	var out []float64
	for e := math.Ceil(math.Log2(low)); e <= math.Floor(math.Log2(high)); e++ {
		out = append(out, math.Exp2(e))
	}
	return out
}

func tickText(v float64) string {
	if v < 1 {
		return fmt.Sprintf("1/%.0f", 1/v)
	}
	return fmt.Sprintf("%.0f", v)
}

func escape(text string) string {
	var s strings.Builder
	_ = xml.EscapeText(&s, []byte(text)) // a Builder does not fail
	return s.String()
}
