// SPDX-License-Identifier: Apache-2.0

package packettrace

import (
	"fmt"
	"io"
)

// Series are several probes of the same connection.
type Series struct {
	Sent    int `json:"sent"`
	Arrived int `json:"arrived"`
	// Losses are the different places and causes, each with the first report.
	Losses []Loss `json:"losses"`
}

// Loss is a place where probes were lost.
type Loss struct {
	Count  int    `json:"count"`
	Report Report `json:"report"`
}

// Add adds what became of a probe.
func (s *Series) Add(r Report) {
	s.Sent++
	if r.State == Arrived {
		s.Arrived++
		return
	}
	for i := range s.Losses {
		o := &s.Losses[i].Report
		if o.State == r.State && o.Where == r.Where && o.Object == r.Object {
			s.Losses[i].Count++
			return
		}
	}
	s.Losses = append(s.Losses, Loss{1, r})
}

// Text prints the series.
func (s Series) Text(w io.Writer, verbose bool) {
	fmt.Fprintf(w, "%d of %d packets arrived\n", s.Arrived, s.Sent)
	for _, l := range s.Losses {
		fmt.Fprintf(w, "%d: ", l.Count)
		l.Report.Text(w, verbose)
	}
}
