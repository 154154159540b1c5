// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"strconv"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Chains have KubeVirt's names, which its users know.
const (
	tableName   = "weft_vm"
	preInbound  = "KUBEVIRT_PREINBOUND"
	postInbound = "KUBEVIRT_POSTINBOUND"
)

// Ports of a sidecar proxy (Istio's) that are never forwarded to the guest, the one that is always forwarded directly,
// and the proxy's source address for connections to the guest.
const (
	meshSource   = "127.0.0.6"
	meshStraight = 22
)

func meshPorts() []uint16 {
	return []uint16{15000, 15001, 15004, 15006, 15008, 15009, 15020, 15021, 15053, 15090}
}

// translate returns the table of one family. Connections to the pod are forwarded to the guest, on all ports or on the
// listed ones. Packets from the guest are masqueraded. With a sidecar proxy, all ports but one are forwarded to the
// guest through the proxy.
func (p masquerade) translate(s subnet) state.Table {
	t := state.Table{Family: "ip", Name: tableName}
	if s.gateway.Is6() {
		t.Family = "ip6"
	}
	listed := len(p.nic.Ports) > 0
	to, only := "dnat to "+s.guest.String(), ""
	if listed {
		t.Sets = append(t.Sets, portSet(p.nic.Ports))
		only = "meta l4proto . th dport @ports "
	}
	in := only + to
	if p.VM.ServiceMesh {
		in = ""
		if !listed || holds(p.nic.Ports, "tcp", meshStraight) {
			in = "tcp dport " + strconv.Itoa(meshStraight) + " " + to
		}
	}
	pre := state.Chain{Name: preInbound}
	if in != "" {
		pre.Rules = texts(in)
	}
	leaves := t.Family + " saddr " + s.guest.String() + " masquerade"
	enters := fmt.Sprintf("iifname %q jump %s", p.names.pod, preInbound)
	if s.gateway.Is6() {
		t.Chains = []state.Chain{pre, base("prerouting", -100, enters), base("postrouting", 100, leaves)}
		return t
	}
	sets, out, post := p.local(s, only)
	t.Sets = append(t.Sets, sets...)
	t.Chains = []state.Chain{
		pre,
		{Name: postInbound, Rules: texts(post...)},
		base("prerouting", -100, enters), base("input", 100), base("output", -100, out...),
		base("postrouting", 100, leaves, fmt.Sprintf("oifname %q jump %s", p.names.bridge, postInbound)),
	}
	return t
}

// local forwards packets to the pod's own 127.0.0.1 to the guest, with the gateway as source address, to which the
// guest can reply. IPv4 only: the kernel drops packets from or to ::1 on a link, so ::1 stays the pod's. Ports of
// hypervisors or of the proxy stay the pod's, too.
func (p masquerade) local(s subnet, only string) (sets []state.Set, out, post []string) {
	const loopback = "127.0.0.1"
	here := state.Set{Name: "here", Key: "ipv4_addr", Elements: elements(loopback)}
	own := state.Set{Name: "own", Key: "ipv4_addr", Elements: elements(loopback)}
	skipped := p.VM.MigrationPorts
	if p.VM.ServiceMesh {
		here.Elements = append(here.Elements, elements(p.addr(false).Addr().String())...)
		own.Elements = append(own.Elements, elements(meshSource)...)
		if only == "" {
			skipped = append(append([]uint16{}, skipped...), meshPorts()...)
		}
	}
	sets = []state.Set{here, own}
	if len(skipped) > 0 {
		sets = append(sets, portNumbers("skipped", skipped))
		skip := "tcp dport @skipped ip saddr " + loopback + " return"
		out, post = append(out, skip), append(post, skip)
	}
	out = append(out, "ip daddr @here "+only+"dnat to "+s.guest.String())
	return sets, out, append(post, only+"ip saddr @own snat to "+s.gateway.String())
}

func base(hook string, priority int, rules ...string) state.Chain {
	return state.Chain{Name: hook, Type: "nat", Hook: hook, Priority: priority, Policy: "accept", Rules: texts(rules...)}
}

func texts(lines ...string) []state.NftRule {
	var out []state.NftRule
	for _, line := range lines {
		out = append(out, state.NftRule{Text: line})
	}
	return out
}

func elements(keys ...string) []state.Element {
	out := make([]state.Element, len(keys))
	for i, key := range keys {
		out[i].Key = []string{key}
	}
	return out
}

func portNumbers(name string, ports []uint16) state.Set {
	s := state.Set{Name: name, Key: "inet_service"}
	for _, port := range ports {
		s.Elements = append(s.Elements, state.Element{Key: []string{strconv.Itoa(int(port))}})
	}
	return s
}

// portSet returns the set of the ports that are forwarded to the guest. Adjacent and overlapping ranges are merged: the
// kernel rejects them otherwise.
func portSet(ports []model.VMPortRange) state.Set {
	s := state.Set{Name: "ports", Key: "inet_proto . inet_service", Interval: true}
	for _, protocol := range []string{"tcp", "udp"} {
		for _, r := range merged(ports, protocol) {
			key := strconv.Itoa(int(r.First))
			if r.Last > r.First {
				key += "-" + strconv.Itoa(int(r.Last))
			}
			s.Elements = append(s.Elements, state.Element{Key: []string{protocol, key}})
		}
	}
	return s
}

func holds(ports []model.VMPortRange, protocol string, port uint16) bool {
	for _, r := range ports {
		if r.Protocol == protocol && r.First <= port && port <= r.Last {
			return true
		}
	}
	return false
}
