// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"strconv"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Chains bear the names that KubeVirt gave them: who looks at a pod's rules knows them.
const (
	tableName   = "weft_vm"
	preInbound  = "KUBEVIRT_PREINBOUND"
	postInbound = "KUBEVIRT_POSTINBOUND"
)

// Ports of a proxy in the pod (Istio's) that never lead to the guest, the one that always leads there directly, and the
// address from which the proxy calls the guest.
const (
	meshSource   = "127.0.0.6"
	meshStraight = 22
)

func meshPorts() []uint16 {
	return []uint16{15000, 15001, 15004, 15006, 15008, 15009, 15020, 15021, 15053, 15090}
}

// translate is the table of one family. What comes to the pod leads to the guest, all of it or the ports that are listed; so
// does what the pod sends to itself. To the guest that seems to come from its gateway, which it can answer; what it sends
// leaves with the pod's address. Beside a proxy all but one port leads to the guest through that one.
func (p *planner) translate(s subnet) state.Table {
	v6 := s.gateway.Is6()
	family, addr, loopback := "ip", "ipv4_addr", "127.0.0.1"
	if v6 {
		family, addr, loopback = "ip6", "ipv6_addr", "::1"
	}
	listed := len(p.nic.Ports) > 0
	t := state.Table{Family: family, Name: tableName}
	here := state.Set{Name: "here", Key: addr, Elements: elements(loopback)}
	own := state.Set{Name: "own", Key: addr, Elements: elements(loopback)}
	if p.VM.Mesh && !v6 {
		here.Elements = append(here.Elements, elements(p.addr(false).Addr().String())...)
		own.Elements = append(own.Elements, elements(meshSource)...)
	}
	t.Sets = []state.Set{here, own}
	to, only := "dnat to "+s.guest.String(), ""
	if listed {
		t.Sets = append(t.Sets, portSet(p.nic.Ports))
		only = "meta l4proto . th dport @ports "
	}
	pre, post := []string{only + to}, []string{only + family + " saddr @own snat to " + s.gateway.String()}
	out := []string{family + " daddr @here " + only + to}
	skipped := p.VM.MigrationPorts
	if p.VM.Mesh {
		pre = nil
		if !listed {
			skipped = append(append([]uint16{}, skipped...), meshPorts()...)
		}
		if !listed || holds(p.nic.Ports, "tcp", meshStraight) {
			pre = []string{"tcp dport " + strconv.Itoa(meshStraight) + " " + to}
		}
	}
	if len(skipped) > 0 {
		t.Sets = append(t.Sets, portNumbers("skipped", skipped))
		skip := "tcp dport @skipped " + family + " saddr " + loopback + " return"
		post, out = append([]string{skip}, post...), append([]string{skip}, out...)
	}
	t.Chains = []state.Chain{
		{Name: preInbound, Rules: texts(pre...)},
		{Name: postInbound, Rules: texts(post...)},
		base("prerouting", -100, fmt.Sprintf("iifname %q jump %s", p.names.pod, preInbound)),
		base("input", 100),
		base("output", -100, out...),
		base("postrouting", 100, family+" saddr "+s.guest.String()+" masquerade", fmt.Sprintf("oifname %q jump %s", p.names.bridge, postInbound)),
	}
	return t
}

func base(hook string, priority int, rules ...string) state.Chain {
	return state.Chain{Name: hook, Type: "nat", Hook: hook, Priority: priority, Policy: "accept", Rules: texts(rules...)}
}

func texts(lines ...string) []state.NftRule {
	out := make([]state.NftRule, len(lines))
	for i, line := range lines {
		out[i].Text = line
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

// portSet holds the ports that lead to the guest. Ranges that touch or overlap are one: the kernel takes no others.
func portSet(ports []model.VMPorts) state.Set {
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

func holds(ports []model.VMPorts, protocol string, port uint16) bool {
	for _, r := range ports {
		if r.Protocol == protocol && r.First <= port && port <= r.Last {
			return true
		}
	}
	return false
}
