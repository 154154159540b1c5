// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Denial is the policies and the direction of a chain that counts denied packets.
type Denial struct {
	Direction string
	// Policies are those that isolate the pod: NetworkPolicies, none of which has a rule that accepts. None: the
	// interface's pod is not known.
	Policies []model.PolicyKey
}

// String returns the text for logs and comments.
func (d Denial) String() string {
	if len(d.Policies) == 0 {
		return "unknown pod " + d.Direction
	}
	return string(d.Policies[0].Kind) + " " + strings.Join(d.names(" "), ",") + " " + d.Direction
}

// names returns the policies' names: with their kind, if it is another than that of the first.
func (d Denial) names(afterKind string) (out []string) {
	for _, p := range d.Policies {
		name := strings.TrimPrefix(p.Namespace+"/"+p.Name, "/")
		if p.Kind != d.Policies[0].Kind {
			name = string(p.Kind) + afterKind + name
		}
		out = append(out, name)
	}
	return out
}

// headerBytes is how much of a denied packet is logged: the headers of IPv6 and of TCP with options.
const headerBytes = 96

// prefix returns the log prefix, by which the reader of the packet log identifies the denial.
func (d Denial) prefix() string {
	dir := "in"
	if d.Direction == egress.String() {
		dir = "out"
	}
	if len(d.Policies) == 0 {
		return dir + ":unknown"
	}
	return truncate(dir+":"+string(d.Policies[0].Kind)+":"+strings.Join(d.names(":"), "+"), maxComment)
}
