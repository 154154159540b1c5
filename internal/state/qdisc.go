// SPDX-License-Identifier: Apache-2.0

package state

import "fmt"

// QdiscKind is a queueing discipline's kind as tc(8) names it.
type QdiscKind string

// The kinds that weft makes.
const (
	// TBF limits the rate at which packets leave over the link.
	TBF QdiscKind = "tbf"
	// Ingress redirects packets that arrive on the link to another link of the same space (an ifb), which shapes them.
	Ingress QdiscKind = "ingress"
)

// Qdisc is a link's queueing discipline: the root one, or, with the kind Ingress, the one for arriving packets.
type Qdisc struct {
	Link string    `json:"link"`
	Kind QdiscKind `json:"kind"`
	// Rate in bytes per second, Burst and Limit in bytes, of TBF. Limit is how much may be queued.
	Rate  uint64 `json:"rate,omitempty"`
	Burst uint32 `json:"burst,omitempty"`
	Limit uint32 `json:"limit,omitempty"`
	// Peak is the maximum rate of the burst, in bytes per second, and PeakBurst its bucket in bytes; 0 means the speed
	// of the link.
	Peak      uint64 `json:"peak,omitempty"`
	PeakBurst uint32 `json:"peakBurst,omitempty"`
	// Redirect is the link to which an Ingress redirects.
	Redirect string `json:"redirect,omitempty"`
}

// String prints the qdisc as tc(8) does.
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
