// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Denial says whose denied packets a chain counts.
type Denial struct {
	Direction string
	// Policies are those that deny together: NetworkPolicies, none of which has a rule that accepts. None: the pod of an
	// interface is not known.
	Policies []model.PolicyKey
}

// String is for logs and comments.
func (d Denial) String() string {
	if len(d.Policies) == 0 {
		return "unknown pod " + d.Direction
	}
	var names []string
	for _, p := range d.Policies {
		names = append(names, strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"))
	}
	return string(d.Policies[0].Kind) + " " + strings.Join(names, ",") + " " + d.Direction
}

// headerBytes is as much of a denied packet as is wanted: the headers of IPv6 and of TCP with options.
const headerBytes = 96

// prefix is the denial as one word, by which the reader of the log knows it.
func (d Denial) prefix() string {
	dir := "in"
	if d.Direction == egress.String() {
		dir = "out"
	}
	if len(d.Policies) == 0 {
		return dir + ":unknown"
	}
	var names []string
	for _, p := range d.Policies {
		names = append(names, strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"))
	}
	return cut(dir+":"+string(d.Policies[0].Kind)+":"+strings.Join(names, "+"), mostComment)
}
