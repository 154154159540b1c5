// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// conditionsText describes the conditions of a rule.
func conditionsText(c model.RuleConditions) string {
	var parts []string
	add := func(is bool, format string, args ...any) {
		if is {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(c.Family != 0, "IPv%d", c.Family)
	add(c.Protocol != 0, "protocol %d", c.Protocol)
	add(c.NotProtocol != 0, "not protocol %d", c.NotProtocol)
	for i, m := range []*model.ICMPMatch{c.ICMP, c.NotICMP} {
		text := [...]string{"ICMP", "not ICMP"}[i]
		add(m != nil && m.Code == nil, "%s type %d", text, value(m).Type)
		add(m != nil && m.Code != nil, "%s type %d code %d", text, value(m).Type, value(value(m).Code))
	}
	for i, e := range []model.EndConditions{c.Source, c.Destination} {
		end := [...]string{"from ", "to "}[i]
		add(e.Peer != nil, "%s%s", end, peerText(value(e.Peer)))
		add(e.NotPeer != nil, "not %s%s", end, peerText(value(e.NotPeer)))
		add(len(e.Nets) > 0, "%s%s", end, netsText(e.Nets))
		add(len(e.NotNets) > 0, "not %s%s", end, netsText(e.NotNets))
		add(e.Service != nil, "%sService %s/%s", end, value(e.Service).Namespace, value(e.Service).Name)
		add(len(e.Ports) > 0, "%sports %s", end, portsText(e.Ports))
		add(len(e.NotPorts) > 0, "not %sports %s", end, portsText(e.NotPorts))
	}
	if len(parts) == 0 {
		return "everything"
	}
	return strings.Join(parts, ", ")
}

// value returns what a pointer leads to, the zero value for nil.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func netsText(nets []netip.Prefix) string {
	var out []string
	for _, n := range nets {
		out = append(out, n.String())
	}
	return strings.Join(out, " ")
}

func portsText(ports []model.PolicyPort) string {
	var out []string
	for _, p := range ports {
		out = append(out, portText(p))
	}
	return strings.Join(out, " ")
}
