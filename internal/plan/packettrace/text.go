// SPDX-License-Identifier: Apache-2.0

package packettrace

import (
	"fmt"
	"io"
	"strings"
)

// Text prints the report. Rules of weft that did not drop the packet are printed only if verbose.
func (r Report) Text(w io.Writer, verbose bool) {
	port := ""
	if r.Protocol != "" {
		port = fmt.Sprintf(" port %d/%s", r.Port, strings.ToLower(string(r.Protocol)))
	}
	to := r.To.String()
	if r.Service != "" {
		to = r.asked + port + ", " + to
		port = ""
	}
	fmt.Fprintf(w, "%s to %s%s: %s\n", r.From, to, port, r.State)
	for _, s := range r.Steps {
		own := strings.HasPrefix(s.Table, "weft-") || strings.HasPrefix(s.Table, "weft_")
		if s.Verdict != arrived && s.Verdict != "drop" && (s.Handle == 0 || own) && !verbose {
			continue
		}
		if s.Chain == "postrouting" && s.Verdict == arrived && !verbose {
			continue // it follows from what is seen next, or is in the cause
		}
		what := "packet"
		if r.IsAnswer(s) {
			what = "answer"
		}
		if r.isTunnel(s) {
			what += " in a tunnel"
		}
		fmt.Fprintf(w, "  %-28s  %-18s  %s\n", checkpoint{node: s.Node, pod: s.Pod}, what, s.text())
	}
	if r.Cause != "" {
		fmt.Fprintf(w, "%s: %s\n", r.Where, r.Cause)
	}
	if r.Object != "" {
		fmt.Fprintf(w, "  object: %s\n", r.Object)
	}
	r.evidence(w)
}

// evidence prints what is known besides the steps.
func (r Report) evidence(w io.Writer) {
	if r.Unwatched != "" {
		fmt.Fprintf(w, "  whether a kernel dropped it is not known: %s\n", r.Unwatched)
	}
	for _, c := range r.Counters {
		place := checkpoint{node: c.Node, pod: c.Pod}
		fmt.Fprintf(w, "  %s counted %d more lost packets, of whatever kind: %s\n", place, c.By, c.Name)
	}
	if r.Passes > 0 {
		fmt.Fprintf(w, "  packets of up to %d bytes pass\n", r.Passes)
	}
	for _, h := range r.Faults {
		fmt.Fprintf(w, "  weft explain: %s at %s (%s): %s\n", h.State, h.Where, h.ID, h.Cause)
		if h.Object != "" {
			fmt.Fprintf(w, "    object: %s\n", h.Object)
		}
		if h.Hint != "" {
			fmt.Fprintf(w, "    hint: %s\n", h.Hint)
		}
	}
}

// text describes a step in a few words.
func (s Step) text() string {
	if s.Verdict == arrived {
		link := ""
		if s.In != "" {
			link = " on " + s.In
		}
		if s.Out != "" {
			link += " to " + s.Out
		}
		return s.Chain + link
	}
	if s.Policy {
		return fmt.Sprintf("%s %s %s: policy %s", s.Family, s.Table, s.Chain, s.Verdict)
	}
	return fmt.Sprintf("%s %s %s: rule %d: %s", s.Family, s.Table, s.Chain, s.Handle, s.Verdict)
}
