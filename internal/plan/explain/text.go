// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"io"
	"strings"
)

// Text prints a report. Hops that are ok are printed only if verbose.
func (r Report) Text(w io.Writer, verbose bool) {
	port := ""
	if r.Protocol != "" {
		port = fmt.Sprintf(" port %d/%s", r.Port, strings.ToLower(string(r.Protocol)))
	}
	fmt.Fprintf(w, "%s to %s%s: %s\n", r.From, r.To, port, r.headline())
	hops(w, "there", r.Forward, verbose)
	hops(w, "back", r.Back, verbose)
	if r.Recorded != nil {
		fmt.Fprintf(w, "  recorded: oldest answer %s, facts %s\n",
			cmp.Or(r.Recorded.OldestAnswer, "none"), cmp.Or(r.Recorded.Facts, "at a time that is not known"))
	}
	for _, f := range r.Faults() {
		fmt.Fprintf(w, "%s at %s (%s): %s\n", f.State, f.Where, f.ID, f.Cause)
		if f.Object != "" {
			fmt.Fprintf(w, "  object: %s\n", f.Object)
		}
		if f.Hint != "" {
			fmt.Fprintf(w, "  hint: %s\n", f.Hint)
		}
	}
}

func (r Report) headline() string {
	switch r.State {
	case OK:
		return "nothing is in the way"
	case Unknown:
		return "nothing is in the way as far as is known"
	case Suspect:
		return "may fail"
	}
	return "blocked"
}

func hops(w io.Writer, way string, list []Hop, verbose bool) {
	folded := 0
	for _, h := range list {
		if h.State == OK && !verbose {
			folded++
			continue
		}
		fmt.Fprintf(w, "  %-5s  %-7s  %-13s  %s\n", way, h.State, h.ID, h.Where)
		if h.State == Unknown {
			fmt.Fprintf(w, "           %s\n", h.Cause)
			if h.Object != "" {
				fmt.Fprintf(w, "           %s\n", h.Object)
			}
		}
		if verbose {
			for _, e := range h.Evidence {
				fmt.Fprintf(w, "           %s\n", e)
			}
		}
	}
	if folded > 0 {
		fmt.Fprintf(w, "  %-5s  ok       %d hops\n", way, folded)
	}
}
