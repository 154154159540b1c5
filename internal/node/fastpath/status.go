// SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"fmt"
	"strings"
)

// Status is the state of the fast path.
type Status struct {
	// Mode is network.fastPath; Used is whether established flows take the fast path, and Reason why not. Way is EBPF or
	// Flowtable, empty if there is neither, and Lacks why Auto has not taken an earlier one.
	Mode   string `json:"mode"`
	Used   bool   `json:"used"`
	Reason string `json:"reason,omitempty"`
	Way    string `json:"way,omitempty"`
	Lacks  string `json:"lacks,omitempty"`
	// Links are the links of the path, and Left those that are none, with the reason.
	Links []string `json:"links,omitempty"`
	Left  []string `json:"left,omitempty"`
	// Liberal: conntrack accepts all TCP packets of connections (nf_conntrack_tcp_be_liberal), for the fast path.
	Liberal bool `json:"liberal,omitempty"`
	// Packets and Bytes of the fast path, by eBPF; Learned counts how often flows were learned.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	Learned uint64 `json:"learned"`
}

// Text is the state in words.
func (s Status) Text() string {
	if !s.Used {
		return s.Mode + ", not used: " + s.Reason
	}
	return fmt.Sprintf("%s at %d links (%s)", s.Mode, len(s.Links), strings.Join(s.Links, ", "))
}
