// SPDX-License-Identifier: Apache-2.0

package oracletest_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/plan/policy/hostendpoint"
	"github.com/weft-net/weft/internal/plan/policy/naive"
	"github.com/weft-net/weft/internal/state"
)

// TestHosts compares what the compiled table of a node does with packets at its interfaces, and what the compiler says of
// them, with the reference evaluator, for random clusters with Calico's host endpoints.
func TestHosts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := draw{T: rt}
		w := d.world(4, 1, 1)
		d.calico(&w)
		node := nodes()[0]
		d.hosts(&w, node)
		x := policy.New(policy.Config{Node: node})
		learn(x, w)
		learnHosts(x, w.Calico)
		table := tables(x)[model.PodRef{}]
		links := []string{}
		for i, pod := range w.Pods {
			if pod.Node == node && !pod.HostNetwork && !pod.Done {
				links = append(links, linkOf(&w.Pods[i]))
			}
		}
		for _, p := range d.hostPackets(w, node, links) {
			want := w.AtHost(node, links, p)
			got := true
			for early, f := range hostWay(p) {
				table := table
				// Pods' policies are those of other tests.
				table.Chains = slices.DeleteFunc(slices.Clone(table.Chains), func(c state.Chain) bool {
					return c.Hook != "" && (!strings.HasPrefix(c.Name, "host-") || c.Hook == "output" && early != (c.Priority < -100))
				})
				ok, err := crosses(table, f)
				if err != nil {
					rt.Fatal(err)
				}
				if got = got && ok; !got {
					break
				}
			}
			if got != want {
				text, _ := json.MarshalIndent(w.Calico, "", " ")
				rt.Fatalf("%+v: the plan says %t, the specification %t\n%s\n%s", p, got, want, text, plans{node: tables(x)})
			}
			sides := x.Calico().AtHost(policy.HostPacket{
				In: p.In, Out: p.Out, Flow: flowOf(p.Packet), Translated: flowOf(p.Translated),
			})
			if said := !slices.ContainsFunc(sides, func(s policy.Side) bool { return !s.Allowed }); said != want {
				text, _ := json.MarshalIndent(w.Calico, "", " ")
				rt.Fatalf("%+v: the compiler says %+v, the specification %t\n%s\n%s", p, sides, want, text, plans{node: tables(x)})
			}
		}
	})
}

// hosts draws host endpoints, and policies that are about them.
func (d draw) hosts(w *naive.World, node string) {
	c := w.Calico
	c.Interfaces = map[string][]netip.Addr{"eth0": nodeAddrs(node), "eth1": {netip.MustParseAddr("10.99.0.1")}, "lo": nil}
	for _, name := range []string{"a", "b", "c"}[:d.number(1, 3, "hosts")] {
		h := naive.CalicoHost{Metadata: naive.Metadata{Name: name}, Labels: d.labels()}
		h.Spec.Node = d.one("node", node, node, "elsewhere")
		if h.Spec.InterfaceName = d.one("interface", "eth0", "eth0", "eth1", "*", ""); h.Spec.InterfaceName == "" || d.yes("addresses") {
			h.Spec.ExpectedIPs = []string{d.one("address", "10.99.0.1", nodeAddrs(node)[0].String())}
		}
		if d.yes("allows") {
			h.Spec.Profiles = []string{"projectcalico-default-allow"}
		}
		if d.seldom(3, "ports") {
			h.Spec.Ports = []naive.CalicoHostPort{{Name: d.one("name", "web", "dns"), Protocol: d.one("protocol", "TCP", "UDP"), Port: 80}}
		}
		c.Hosts = append(c.Hosts, h)
	}
	for i := range d.number(1, 4, "policies at hosts") {
		c.Policies = append(c.Policies, d.hostPolicy(fmt.Sprintf("%s%d", d.one("name", "b", "n", "y"), i)))
	}
	failsafes := func() (out []naive.Failsafe) {
		for range d.number(0, 2, "failsafes") {
			out = append(out, naive.Failsafe{
				Proto: d.one("protocol", "TCP", "UDP"), Port: rapid.SampledFrom([]int{53, 80, 8080}).Draw(d.T, "port"),
				Net: d.one("net", "", "", d.nets()[0]),
			})
		}
		return out
	}
	c.Inbound, c.Outbound = failsafes(), failsafes()
	c.EndpointToHost = d.one("endpoint to host", "", "Drop", "Accept")
}

// hostPolicy draws a policy that is likely to select host endpoints, with rules that are likely to match.
func (d draw) hostPolicy(name string) naive.CalicoPolicy {
	p := naive.CalicoPolicy{Metadata: naive.Metadata{Name: name}}
	p.Spec.Tier, p.Spec.Order = d.one("tier", "", "first", "second"), d.order(1, 1000, 2000)
	if d.seldom(3, "some") {
		p.Spec.Selector = d.calicoSelector(1)
	}
	p.Spec.Types = rapid.SampledFrom([][]string{{"Ingress"}, {"Egress"}, {"Ingress", "Egress"}}).Draw(d.T, "types")
	rules := func(label string) (out []naive.CalicoRule) {
		for range d.number(0, 3, label) {
			if d.seldom(3, "complex") {
				out = append(out, d.calicoRule())
				continue
			}
			r := naive.CalicoRule{Action: d.one("action", "Allow", "Allow", "Deny", "Pass"), Protocol: d.one("protocol", "", "TCP", "UDP")}
			if r.Protocol != "" {
				r.Destination.Ports = d.calicoPorts()
			}
			out = append(out, r)
		}
		return out
	}
	switch d.number(0, 3, "scope") {
	case 1:
		p.Spec.ApplyOnForward = true
	case 2:
		p.Spec.ApplyOnForward, p.Spec.PreDNAT, p.Spec.Types = true, true, []string{"Ingress"}
	case 3:
		p.Spec.ApplyOnForward, p.Spec.DoNotTrack = true, true
	}
	p.Spec.Ingress, p.Spec.Egress = rules("ingress rules"), rules("egress rules")
	if p.Spec.PreDNAT {
		p.Spec.Egress = nil
	}
	return p
}

func learnHosts(x *policy.Index, c *naive.Calico) {
	ports := func(in []naive.Failsafe) *[]model.FailsafePort {
		out := []model.FailsafePort{}
		for _, f := range in {
			one := model.FailsafePort{Protocol: model.Protocol(f.Proto), Port: uint16(f.Port)}
			if f.Net != "" {
				one.Net = netip.MustParsePrefix(f.Net)
			}
			out = append(out, one)
		}
		return &out
	}
	x.Calico().SetFelixConfiguration(model.FelixConfiguration{
		Name: "default", Inbound: ports(c.Inbound), Outbound: ports(c.Outbound), EndpointToHost: c.EndpointToHost,
	})
	var all []hostendpoint.Interface
	for name, addrs := range c.Interfaces {
		all = append(all, hostendpoint.Interface{Name: name, Addrs: addrs})
	}
	x.Calico().SetInterfaces(all)
}

// hostPackets draws packets at a node: between its interfaces, its processes and its pods.
func (d draw) hostPackets(w naive.World, node string, links []string) (out []naive.HostPacket) {
	at := allAddresses(w)
	at = slices.DeleteFunc(at, onSecond)
	links = append([]string{"eth0", "eth1", "lo"}, links...)
	for range 40 {
		p := naive.HostPacket{In: d.one("in", append(links, "")...), Out: d.one("out", append(links, "")...)}
		if p.In == p.Out {
			continue
		}
		p.Packet.Src = rapid.SampledFrom(at).Draw(d.T, "source")
		p.Packet.Dst = rapid.SampledFrom(at).Draw(d.T, "destination")
		if p.Packet.Src.Is4() != p.Packet.Dst.Is4() {
			continue
		}
		if p.Packet.Proto = d.one("protocol", "TCP", "UDP", "ICMP"); p.Packet.Proto != "ICMP" {
			p.Packet.Port = rapid.SampledFrom([]int{53, 80, 81, 8080}).Draw(d.T, "port")
		}
		p.Translated = p.Packet
		if d.seldom(3, "translated") && p.Packet.Port != 0 {
			to := rapid.SampledFrom(at).Draw(d.T, "translated to")
			if to.Is4() == p.Packet.Dst.Is4() {
				p.Translated.Dst, p.Translated.Port = to, rapid.SampledFrom([]int{53, 80, 81}).Draw(d.T, "translated port")
			}
		}
		out = append(out, p)
	}
	return out
}

func flowOf(p naive.Packet) policy.Flow {
	f := policy.Flow{Src: p.Src, Dst: p.Dst, DstPort: uint16(p.Port)}
	if p.Proto != "ICMP" {
		f.Protocol = model.Protocol(p.Proto)
	}
	return f
}

// hostWay returns one packet at the hooks on its path, which rules change as it goes, and whether it is before the
// translation of what the node sends.
func hostWay(p naive.HostPacket) func(yield func(bool, *frame) bool) {
	f := frame{local: p.In == ""}
	set := func(q naive.Packet) {
		f.src, f.dst, f.proto, f.port, f.icmp = q.Src, q.Dst, strings.ToLower(q.Proto), q.Port, 8
		if f.proto == "icmp" && !q.Src.Is4() {
			f.proto, f.icmp = "ipv6-icmp", 128
		}
	}
	hooks := []string{"early", "output", "postrouting"}
	switch {
	case p.In != "" && p.Out != "":
		hooks = []string{"prerouting", "forward", "postrouting"}
	case p.In != "":
		hooks = []string{"prerouting", "input"}
	}
	return func(yield func(bool, *frame) bool) {
		for _, hook := range hooks {
			early := hook == "early"
			if f.hook, f.in, f.out = hook, p.In, p.Out; early {
				f.hook = "output"
			}
			if hook == "prerouting" {
				f.out = ""
			}
			set(p.Packet)
			// What is not tracked is not translated, and neither are packets before the translation.
			if hook != "prerouting" && !early && !f.untracked && p.Translated != p.Packet {
				set(p.Translated)
				f.dnat = true
			}
			if !yield(early, &f) {
				return
			}
		}
	}
}
