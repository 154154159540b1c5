// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/weft-net/weft/internal/netns"
)

// role is a plugin's place in a list.
type role string

const (
	maker   role = "main" // makes an interface
	chained role = "meta" // works on what those before it have made
	giver   role = "ipam" // gives addresses
)

// subject is a plugin type: how it is configured, what it needs, and what its work looks like.
type subject struct {
	typ    string
	role   role
	ifName string
	// delegates: it gets addresses from an IPAM plugin.
	delegates bool
	// needs are the link kinds without which this kernel cannot show it.
	needs []string
	// conf are the keys of its configuration; p has no namespace where no pod is meant.
	conf func(w *world, p *pod) map[string]any
	// node prepares the node's namespace, furnish a pod's; either may be nil.
	node    func(w *world) error
	furnish func(w *world, p *pod) error
	// work tells what is missing of a chained plugin's work.
	work func(w *world, p *pod) error
	// harm are the ways to break what it has made, but for interface, address and route.
	harm []harm
	// ipam is the section that a list of the caller's has; nil: the kit's own.
	ipam map[string]any
	// exhaust takes away what an ADD needs, or is nil when there is no such thing.
	exhaust func(w *world) error
}

// harm breaks something of a plugin's own.
type harm struct {
	what string
	do   func(w *world, p *pod) error
}

// subjects are all types that the kit knows, in the order of the rows.
func subjects() []*subject {
	all := slices.Concat(makers(), metas(), givers())
	for _, s := range all {
		if s.ifName == "" {
			s.ifName = "eth0"
		}
	}
	return all
}

// Types are the names of the plugins that can be judged.
func Types() []string {
	var out []string
	for _, s := range subjects() {
		out = append(out, s.typ)
	}
	return out
}

// makers are the plugins that make interfaces.
func makers() []*subject {
	onUplink := func(extra func(w *world, p *pod) map[string]any) func(w *world, p *pod) map[string]any {
		return func(w *world, p *pod) map[string]any {
			m := map[string]any{"master": uplink, "ipam": w.ipam}
			for k, v := range extra(w, p) {
				m[k] = v
			}
			return m
		}
	}
	none := func(*world, *pod) map[string]any { return nil }
	list := []*subject{
		{typ: "bridge", needs: []string{"veth", "bridge"}, conf: func(w *world, _ *pod) map[string]any {
			return map[string]any{"bridge": "kitbr0", "isGateway": true, "ipMasq": true, "ipam": w.ipam}
		}},
		{typ: "ptp", needs: []string{"veth"}, conf: func(w *world, _ *pod) map[string]any {
			return map[string]any{"ipMasq": true, "ipam": w.ipam}
		}},
		{typ: "macvlan", needs: []string{"veth", "macvlan"}, node: makeUplink, conf: onUplink(none)},
		{typ: "ipvlan", needs: []string{"veth", "ipvlan"}, node: makeUplink, conf: onUplink(none)},
		{
			typ: "vlan", needs: []string{"veth", "vlan"}, node: makeUplink,
			conf: onUplink(func(_ *world, p *pod) map[string]any {
				return map[string]any{"vlanId": 100 + p.n}
			}),
		},
		{
			typ: "host-device", needs: []string{"veth"}, node: spareDevice, furnish: giveDevice,
			conf: func(w *world, p *pod) map[string]any {
				return map[string]any{"device": fmt.Sprintf("kithd%d", p.n), "ipam": w.ipam}
			},
		},
		{typ: "dummy", needs: []string{"dummy"}, conf: func(w *world, _ *pod) map[string]any {
			return map[string]any{"ipam": w.ipam}
		}},
		{typ: "tap", needs: []string{"tun"}, conf: func(w *world, _ *pod) map[string]any {
			return map[string]any{"ipam": w.ipam}
		}},
	}
	for _, s := range list {
		s.role, s.delegates, s.exhaust = maker, true, exhaustRange
	}
	list = append(list, flannelSubject())
	return append(list, &subject{
		typ: "loopback", role: maker, ifName: "lo", conf: func(*world, *pod) map[string]any { return nil },
	})
}

// uplink is the node's link to the world, where a plugin wants one.
const uplink = "kitup0"

func makeUplink(w *world) error {
	return w.host.Do(func() error {
		return pair(uplink, "kitup1", nil)
	})
}

// pair makes a veth pair, both ends up; the peer may live in another namespace.
func pair(name, peer string, peerNS *netns.NS) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	v := &netlink.Veth{LinkAttrs: attrs, PeerName: peer}
	if peerNS != nil {
		v.PeerNamespace = netlink.NsFd(peerNS.Fd())
	}
	if err := netlink.LinkAdd(v); err != nil {
		return fmt.Errorf("veth %s: %w", name, err)
	}
	if err := up(name); err != nil {
		return err
	}
	if peerNS != nil {
		return peerNS.Do(func() error { return up(peer) })
	}
	return up(peer)
}

func up(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	return netlink.LinkSetUp(l)
}

// spareDevice is the device that a configuration names where no pod is meant.
func spareDevice(w *world) error { return giveDevice(w, &pod{}) }

// giveDevice makes the device that the pod will get.
func giveDevice(w *world, p *pod) error {
	return w.host.Do(func() error {
		return pair(fmt.Sprintf("kithd%d", p.n), fmt.Sprintf("kithp%d", p.n), nil)
	})
}

// exhaustRange leaves no address: the range has one, and a pod has taken it.
func exhaustRange(w *world) error {
	if w.ipam["type"] != hostLocal {
		return errNothingToExhaust
	}
	w.ipam["rangeStart"], w.ipam["rangeEnd"] = "10.23.0.77", "10.23.0.77"
	_, err := w.attached()
	return err
}
