// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// pair is a veth pair between the node and the container.
type pair struct {
	host, pod state.Link
}

// newPair names both ends of an attachment's pair; a zero mac is chosen from the seed.
func newPair(r model.Request, mtu int, mac state.MAC) pair {
	if mac.IsZero() {
		mac = podMAC(r)
	}
	host, mark := HostName(r), Mark(r.Key())
	return pair{
		host: state.Link{
			Name: host, Kind: state.Veth, MAC: hostMAC(r), MTU: mtu, Up: state.On(), Alias: mark,
			Peer: &state.Peer{Space: state.Pod, Name: r.IfName},
		},
		pod: state.Link{
			Name: r.IfName, Kind: state.Veth, MAC: mac, MTU: mtu, Up: state.On(), Alias: mark,
			Peer: &state.Peer{Space: state.Host, Name: host},
		},
	}
}

// interfaces are the pair as a result names it.
func (p pair) interfaces(r model.Request) []model.Interface {
	return []model.Interface{
		{Name: p.host.Name, MAC: p.host.MAC.String()},
		{Name: p.pod.Name, MAC: p.pod.MAC.String(), Sandbox: r.Netns},
	}
}

// freeName asks for the container's interface, which must not be there yet.
func freeName(r model.Request) state.Query { return state.Query{Space: state.Pod, Link: r.IfName} }

func checkFreeName(in Input) error {
	if !in.Answers[freeName(in.Request)].Found {
		return nil
	}
	return model.Faultf(model.CodeExists, "DEL the attachment that has it, or choose another CNI_IFNAME",
		"interface %q exists already in %s", in.Request.IfName, in.Request.Netns)
}

// quiet keeps the kernel from giving the link an IPv6 link-local address of its own. A link that nobody uses for IPv6
// is then silent: its router solicitations, multicast reports and duplicate address detection would go to every port of
// a bridge, and with a thousand ports that costs more than all the rest of an ADD.
func quiet(link string) state.Sysctl {
	return state.Sysctl{Name: "net/ipv6/conf/" + link + "/addr_gen_mode", Value: "1", IfPresent: true}
}

// linkLocal is the IPv6 link-local address that goes with a MAC (RFC 4291, appendix A), without duplicate address
// detection: the plan chose the MAC, so nobody else has it.
func linkLocal(link string, mac state.MAC) state.Addr {
	a := [16]byte{
		0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5],
	}
	return state.Addr{Link: link, Prefix: netip.PrefixFrom(netip.AddrFrom16(a), 64), NoDAD: true}
}

// hostLinkLocal is linkLocal for the node's end of a routed pair, which needs it to ask for its neighbor. It brings no
// route of its own: the kernel walks over all IPv6 routes of the node whenever a link comes up.
func hostLinkLocal(link string, mac state.MAC) state.Addr {
	a := linkLocal(link, mac)
	a.Prefix, a.NoPrefixRoute = full(a.Prefix.Addr()), true
	return a
}

// forwarding switches routing on for the families that are used.
func forwarding(v4, v6 bool) []state.Sysctl {
	var out []state.Sysctl
	if v4 {
		out = append(out, state.Sysctl{Name: "net/ipv4/ip_forward", Value: "1", Shared: true})
	}
	if v6 {
		out = append(out, state.Sysctl{Name: "net/ipv6/conf/all/forwarding", Value: "1", Shared: true})
	}
	return out
}
