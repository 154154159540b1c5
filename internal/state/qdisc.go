// SPDX-License-Identifier: Apache-2.0

package state

import "fmt"

// QdiscKind is a queueing discipline's kind as tc(8) names it.
type QdiscKind string

// The kinds that weft makes.
const (
	// TBF lets what leaves over the link pass at a rate.
	TBF QdiscKind = "tbf"
	// Ingress sends what comes in over the link through another link of the same space (an ifb), which shapes it.
	Ingress QdiscKind = "ingress"
)

// Qdisc is a link's queueing discipline: the root one, or, of kind Ingress, that of arriving packets.
type Qdisc struct {
	Link string    `json:"link"`
	Kind QdiscKind `json:"kind"`
	// Rate in bytes a second, Burst and Limit in bytes, of TBF. Limit is what may wait.
	Rate  uint64 `json:"rate,omitempty"`
	Burst uint32 `json:"burst,omitempty"`
	Limit uint32 `json:"limit,omitempty"`
	// Peak is the rate, in bytes a second, at which the burst itself passes, and PeakBurst what of it passes at once; 0 is
	// as fast as the link.
	Peak      uint64 `json:"peak,omitempty"`
	PeakBurst uint32 `json:"peakBurst,omitempty"`
	// Redirect is where an Ingress sends to.
	Redirect string `json:"redirect,omitempty"`
}

// String prints the qdisc with tc's words.
func (q Qdisc) String() string {
	if q.Kind == Ingress {
		return fmt.Sprintf("qdisc ingress dev %s redirect dev %s", q.Link, q.Redirect)
	}
	peak := ""
	if q.Peak != 0 {
		peak = fmt.Sprintf(" peakrate %dbps minburst %d", q.Peak, q.PeakBurst)
	}
	return fmt.Sprintf("qdisc %s dev %s root rate %dbps burst %d limit %d%s", q.Kind, q.Link, q.Rate, q.Burst,
		q.Limit, peak)
}
