// SPDX-License-Identifier: Apache-2.0

package connectivity

// Proto is a protocol in one address family.
type Proto string

// The protocols that are probed.
const (
	ICMP4 Proto = "icmp4"
	ICMP6 Proto = "icmp6"
	TCP4  Proto = "tcp4"
	TCP6  Proto = "tcp6"
	UDP4  Proto = "udp4"
	UDP6  Proto = "udp6"
)

// Protos returns the protocols in the order of a report.
func Protos() []Proto { return []Proto{ICMP4, ICMP6, TCP4, TCP6, UDP4, UDP6} }

func (p Proto) is6() bool { return p[len(p)-1] == '6' }

func (p Proto) name() string { return string(p[:len(p)-1]) }

// Failure is a pair that is not reachable.
type Failure struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Proto Proto  `json:"proto"`
	Error string `json:"error"`
	// Expected reports whether the pair should be reachable.
	Expected bool `json:"expected"`
}

// Report is the result of Run. The keys of its JSON form are stable.
type Report struct {
	Pairs   int       `json:"pairs"`
	Reached int       `json:"reached"`
	Failed  []Failure `json:"failed"` // never nil, in the order of the endpoints
	// Denied counts the pairs that policies deny and that are not reachable.
	Denied int `json:"denied,omitempty"`
	// Leaked are pairs that policies deny and that are reachable.
	Leaked []Failure `json:"leaked,omitempty"`
	// Networks are the reports of the pods' additional networks.
	Networks []Network `json:"networks,omitempty"`
	// Skipped are objects that are not tested, each with the reason.
	Skipped []Skip `json:"skipped,omitempty"`
	// Names are the endpoints in order, and Cells the results from row to column.
	Names []string `json:"-"`
	Cells [][]Cell `json:"-"`
}

// Skip is an object that is not tested.
type Skip struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Cell counts the pairs from one endpoint to another. Denied and Leaked count the pairs that policies deny: not reachable
// and reachable ones.
type Cell struct{ Pairs, Reached, Denied, Leaked int }

// OK reports whether all results are as expected.
func (r Report) OK() bool {
	for _, f := range r.Failed {
		if f.Expected {
			return false
		}
	}
	for _, n := range r.Networks {
		if !n.OK() {
			return false
		}
	}
	return len(r.Leaked) == 0
}

// Network is the report of one additional network.
type Network struct {
	Network string `json:"network"`
	Report
}
