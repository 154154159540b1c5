// SPDX-License-Identifier: Apache-2.0

package reach

// Proto is a protocol in one family.
type Proto string

// The protocols that are tried.
const (
	ICMP4 Proto = "icmp4"
	ICMP6 Proto = "icmp6"
	TCP4  Proto = "tcp4"
	TCP6  Proto = "tcp6"
	UDP4  Proto = "udp4"
	UDP6  Proto = "udp6"
)

// Protos lists the protocols in the order of a report.
func Protos() []Proto { return []Proto{ICMP4, ICMP6, TCP4, TCP6, UDP4, UDP6} }

func (p Proto) is6() bool { return p[len(p)-1] == '6' }

func (p Proto) name() string { return string(p[:len(p)-1]) }

// Failure is a pair that did not reach.
type Failure struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Proto Proto  `json:"proto"`
	Error string `json:"error"`
	// Expected reports whether it should have reached.
	Expected bool `json:"expected"`
}

// Report is what was found. The keys of its JSON form are stable.
type Report struct {
	Pairs   int       `json:"pairs"`
	Reached int       `json:"reached"`
	Failed  []Failure `json:"failed"` // never nil, in the order of the endpoints
	// Denied counts the pairs that did not reach and should not.
	Denied int `json:"denied,omitempty"`
	// Leaked are pairs that reached although they should not have.
	Leaked []Failure `json:"leaked,omitempty"`
	// Networks are what was found in networks beside the endpoints' first.
	Networks []Network `json:"networks,omitempty"`
	// Skipped are what was not tried, each with the reason.
	Skipped []Skip `json:"skipped,omitempty"`
	// Names are the endpoints in order, and Cells what was tried and reached from row to column.
	Names []string `json:"-"`
	Cells [][]Cell `json:"-"`
}

// Skip is a thing that was not tried.
type Skip struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Cell is what was tried between two endpoints in one direction: Denied did not reach and should not, Leaked reached
// and should not.
type Cell struct{ Pairs, Reached, Denied, Leaked int }

// OK tells whether everything is as expected.
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

// Network is what was found in one further network.
type Network struct {
	Network string `json:"network"`
	Report
}
