// SPDX-License-Identifier: Apache-2.0

// Package probe is the part of the connectivity test that runs in its pods: Serve answers, and Run sends what the test
// asks for and reports what came back. It needs no right but CAP_NET_RAW, for ICMP and for packets with another's source
// address.
package probe

import "encoding/json"

// Kind is what a probe sends.
type Kind string

// The kinds of probes. All but ICMP, MTU, DNS and Connect need a server of Serve at the destination.
const (
	TCP       Kind = "tcp"       // a connection, a request and its answer
	UDP       Kind = "udp"       // a datagram and its answer
	ICMP      Kind = "icmp"      // an echo request
	Transfer  Kind = "transfer"  // Size bytes there and back in a TCP connection, which must be the same
	Fragments Kind = "fragments" // a datagram of Size bytes and its answer, larger than the path's MTU
	MTU       Kind = "mtu"       // echo requests one byte below and at the MTU, and one above, which must not leave
	Spoof     Kind = "spoof"     // datagrams with source From, of which the server counts those that arrive
	Flow      Kind = "flow"      // for Millis a TCP connection and datagrams, one each every 5 ms
	DNS       Kind = "dns"       // a name's addresses
	Connect   Kind = "connect"   // a TCP connection to a server that is not the test's

	// To weft's guest (guest-tools answer), as a peer of a VM that migrates:
	Lines      Kind = "lines"       // a TCP connection on which the guest sends a line each 10 ms, until LinesEnd
	LinesBegun Kind = "lines-begun" // waits until such a connection of this pod receives lines
	LinesEnd   Kind = "lines-end"   // ends it, when lines come in time
)

// Probe is what is sent.
type Probe struct {
	Kind Kind `json:"kind"`
	// To is a destination: host:port, an address for ICMP and MTU, or a name for DNS.
	To   string `json:"to"`
	From string `json:"from,omitempty"`
	Size int    `json:"size,omitempty"`
	// Millis is the time for the answer, the duration of a Flow, or the longest one of Lines.
	Millis int `json:"millis"`
}

// State is what became of a probe.
type State string

// The states.
const (
	Answered State = "answered"
	// Silent: nothing came back, or a router refused to pass the packet on.
	Silent State = "silent"
	// Failed: the probe could not be sent, or the answer was wrong. This says nothing about what the network passes.
	Failed State = "failed"
)

// Result is the result of a probe.
type Result struct {
	State State `json:"state"`
	// Error is why it is not Answered.
	Error string `json:"error,omitempty"`
	// Server is the name of the server that answered, and Source the address that it saw.
	Server string `json:"server,omitempty"`
	Source string `json:"source,omitempty"`
	Micros int64  `json:"micros"`
	// MTU is that of the interface, in bytes, of a probe of this kind.
	MTU int `json:"mtu,omitempty"`
	// Detail is what a Flow or Lines measured; PauseMillis is the longest time without a line.
	Detail      string `json:"detail,omitempty"`
	PauseMillis int64  `json:"pauseMillis,omitempty"`
}

// Parse parses the JSON of probes.
func Parse(text string) (out []Probe, err error) { return out, json.Unmarshal([]byte(text), &out) }
