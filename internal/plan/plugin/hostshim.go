// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// The kernel passes no packets between a link and its macvlans. A host shim is a macvlan of the node itself, next to
// those of its pods: with it the two reach each other. All pods with a shim on one master share it; it has the node's
// addresses in their subnets, and a route to each pod's address leads over it. The last of these routes to go takes it
// along.
//
// The shim is a second interface of the node in the master's network. What comes in by it, and is not from one of these pods,
// is dropped, ARP requests too: all other hosts keep reaching the node by the master. The node sends no ARP requests by
// it, from which they would learn its MAC for the node's address: the MACs of the pods are permanent entries. It forwards
// nothing, so that no pod gets past the node to other networks.

// shimTable names the tables that filter the packets of host shims.
const shimTable = "weft_shim"

// HostShim returns the name of the host shim on a master.
func HostShim(master string) string {
	sum := sha256.Sum256([]byte(master))
	return state.HostShimPrefix + hex.EncodeToString(sum[:])[:maxLinkName-len(state.HostShimPrefix)]
}

// checkHostShim rejects a shim that could not reach the pods, or that nothing would remove.
func (c macvlanConf) checkHostShim(agent bool) error {
	reject := func(hint, why string) error {
		return model.Errorf(model.CodeInvalidConf, hint, "plugin macvlan: hostShim true: %s", why)
	}
	switch {
	case !c.HostShim:
		return nil
	case !agent:
		return reject("run weft-agent, or leave it out", "without an agent nothing removes the shim after the last pod")
	case c.Master == "":
		return reject("set master", "master is missing, and the default route may change while there are pods")
	case c.LinkInContainer:
		return reject("leave one of them out", "with linkInContainer true the master is not the node's")
	case c.Mode != "bridge":
		return reject(`use mode "bridge", or leave hostShim out`, "with mode "+c.Mode+" the shim reaches no pod")
	case !c.ipam:
		return reject("add ipam, or leave hostShim out", "the interface gets no addresses to which the node could have routes")
	}
	return nil
}

// hostShim adds the node's side to the plan of a pod's interface.
func (c macvlanConf) hostShim(in Input, f *state.Fragment, master state.Link, a addressed) {
	if !c.HostShim {
		return
	}
	name := HostShim(c.Master)
	f.Host.Links = append(f.Host.Links, state.Link{
		Name: name, Kind: state.Macvlan, Alias: SharedMark, Shared: true, Up: state.On(),
		MAC:    state.SeedMAC("host shim/" + master.Name + "/" + master.MAC.String()),
		Parent: &state.Parent{Space: state.Host, Name: master.Name}, Macvlan: &state.MacvlanAttrs{Mode: c.Mode},
	})
	for setting, value := range map[string]string{"addr_gen_mode": "1", "accept_ra": "0"} {
		f.Host.Sysctls = append(f.Host.Sysctls, state.Sysctl{
			Name: "net/ipv6/conf/" + name + "/" + setting, Value: value, IfPresent: true, Shared: true,
		})
	}
	slices.SortFunc(f.Host.Sysctls, func(a, b state.Sysctl) int { return strings.Compare(a.Name, b.Name) })
	addrs := in.Answers[c.named()].Addrs
	for _, ip := range a.ips {
		pod := ip.Address.Addr()
		route := state.Route{Dst: netip.PrefixFrom(pod, pod.BitLen()), Link: name}
		if i := slices.IndexFunc(addrs, func(a state.Addr) bool { return a.Prefix.Contains(pod) }); i >= 0 {
			route.Src = addrs[i].Prefix.Addr()
			own := state.Addr{
				Link: name, Prefix: netip.PrefixFrom(route.Src, route.Src.BitLen()), NoDAD: route.Src.Is6(), NoPrefixRoute: true,
				Shared: true,
			}
			if !slices.Contains(f.Host.Addrs, own) {
				f.Host.Addrs = append(f.Host.Addrs, own)
			}
		}
		f.Host.Routes = append(f.Host.Routes, route)
		f.Host.Neighs = append(f.Host.Neighs, state.Neigh{Link: name, IP: pod, MAC: f.Pod.Links[0].MAC})
	}
	f.Host.Tables = append(f.Host.Tables, shimTables(in.Request.Key(), name, f.Pod.Links[0].MAC, a)...)
}

// hasHostShim reports whether an earlier planner planned a host shim.
func (in Input) hasHostShim() bool {
	return slices.ContainsFunc(in.Chain.Fragment.Host.Tables, func(t state.Table) bool { return t.Name == shimTable })
}

// shimTables returns the shared tables with the elements of one pod. Link-local addresses are matched by the MAC only:
// a pod may solicit with them.
func shimTables(k model.AttachmentKey, shim string, mac state.MAC, a addressed) []state.Table {
	mark := elementMark(k)
	macs := state.Set{Name: "macs", Key: "ifname . ether_addr"}
	pods4 := state.Set{Name: "pods4", Key: "ifname . ether_addr . ipv4_addr"}
	pods6 := state.Set{Name: "pods6", Key: "ifname . ether_addr . ipv6_addr"}
	arp4 := pods4
	add := func(s *state.Set, key ...string) {
		s.Elements = append(s.Elements, state.Element{Key: append([]string{shim, mac.String()}, key...), Comment: mark})
	}
	for i, ip := range a.ips {
		if i == 0 {
			add(&macs)
		}
		if addr := ip.Address.Addr(); addr.Is6() {
			add(&pods6, addr.String())
		} else {
			add(&pods4, addr.String())
			add(&arp4, addr.String())
		}
	}
	const ours = state.HostShimPrefix + "*"
	rules := func(texts ...string) (out []state.NftRule) {
		for _, text := range texts {
			out = append(out, state.NftRule{Text: text})
		}
		return out
	}
	return []state.Table{
		{
			Family: "inet", Name: shimTable, Shared: true, Sets: []state.Set{macs, pods4, pods6},
			Chains: []state.Chain{
				{
					Name: "prerouting", Type: "filter", Hook: "prerouting", Priority: -300, Policy: "accept", Rules: rules(
						"iifname != "+ours+" accept",
						"iifname . ether saddr . ip saddr @pods4 accept",
						"icmpv6 type 134 drop",
						"icmpv6 type 137 drop",
						"iifname . ether saddr . ip6 saddr @pods6 accept",
						"ip6 saddr fe80::/10 icmpv6 type 135-136 iifname . ether saddr @macs accept",
						"counter drop",
					),
				},
				{
					Name: "forward", Type: "filter", Hook: "forward", Policy: "accept", Rules: rules(
						"iifname "+ours+" counter drop", "oifname "+ours+" counter drop",
					),
				},
			},
		},
		{
			Family: "arp", Name: shimTable, Shared: true, Sets: []state.Set{arp4}, Chains: []state.Chain{
				{
					Name: "input", Type: "filter", Hook: "input", Policy: "accept", Rules: rules(
						"iifname != "+ours+" accept", "iifname . arp saddr ether . arp saddr ip @pods4 accept", "counter drop",
					),
				},
				{
					Name: "output", Type: "filter", Hook: "output", Policy: "accept", Rules: rules(
						"oifname " + ours + " arp operation request counter drop",
					),
				},
			},
		},
	}
}
