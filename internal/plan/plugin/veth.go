// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// pair is the container's interface and its peer on the node. host has no name if there is no peer (macvlan, a device).
type pair struct {
	host, pod state.Link
}

// newPair returns the veth pair of an attachment; a zero mac is replaced by one from the seed.
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

// interfaces returns the pair for the result.
func (p pair) interfaces(r model.Request) []model.Interface {
	return []model.Interface{
		{Name: p.host.Name, MAC: p.host.MAC.String()},
		{Name: p.pod.Name, MAC: p.pod.MAC.String(), Sandbox: r.Netns},
	}
}

// freeName returns the query for the container's interface, which must not exist yet.
func freeName(r model.Request) state.Query { return state.Query{Space: state.Pod, Link: r.IfName} }

func checkFreeName(in Input) error {
	if !in.Answers[freeName(in.Request)].Found {
		return nil
	}
	return model.Errorf(model.CodeExists, "DEL the attachment that uses it, or choose another CNI_IFNAME",
		"interface %q exists already in %s", in.Request.IfName, in.Request.Netns)
}

// noAddrGen disables the kernel's own IPv6 link-local address. An interface without IPv6 then sends no router
// solicitations, multicast reports and duplicate address detection. They would go to every port of a bridge, and with a
// thousand ports cost more than the rest of an ADD.
func noAddrGen(link string) state.Sysctl {
	return state.Sysctl{Name: "net/ipv6/conf/" + link + "/addr_gen_mode", Value: "1", IfPresent: true}
}

// linkLocal returns the IPv6 link-local address of a MAC address (RFC 4291, appendix A), without duplicate address
// detection: the plan chose the MAC address, so it is unique.
func linkLocal(link string, mac state.MAC) state.Addr {
	a := [16]byte{
		0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5],
	}
	return state.Addr{Link: link, Prefix: netip.PrefixFrom(netip.AddrFrom16(a), 64), NoDAD: true}
}

// hostLinkLocal is linkLocal for the node's end of a routed pair, which uses it for neighbor discovery. It adds no
// prefix route: the kernel walks over all IPv6 routes of the node whenever a link is set up.
func hostLinkLocal(link string, mac state.MAC) state.Addr {
	a := linkLocal(link, mac)
	a.Prefix, a.NoPrefixRoute = full(a.Prefix.Addr()), true
	return a
}

// forwarding returns the sysctls that enable forwarding for the used families.
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
