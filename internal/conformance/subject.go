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
	mainPlugin role = "main" // creates an interface
	metaPlugin role = "meta" // chained after other plugins
	ipamPlugin role = "ipam" // allocates addresses
)

// subject is a plugin type: how it is configured, what it requires, and how its effects are verified.
type subject struct {
	typ    string
	role   role
	ifName string
	// delegates is set if it calls an IPAM plugin.
	delegates bool
	// needs are the link kinds that it requires of the kernel.
	needs []string
	// conf returns the keys of its configuration; p has no namespace for calls without a pod.
	conf func(w *world, p *pod) map[string]any
	// prepareNode prepares the node's namespace, preparePod a pod's; both are optional.
	prepareNode func(w *world) error
	preparePod  func(w *world, p *pod) error
	// verifyWork returns an error if effects of a chained plugin are missing.
	verifyWork func(w *world, p *pod) error
	// damages are the ways to damage its configuration, except for interface, address and route.
	damages []damage
	// ipam is the IPAM section of the user's list; nil: that of the kit.
	ipam map[string]any
	// exhaust removes or exhausts a resource that an ADD requires; nil if there is none.
	exhaust func(w *world) error
}

// damage is a way to damage what a plugin has configured.
type damage struct {
	what string
	do   func(w *world, p *pod) error
}

// subjects returns all types that the kit knows, in the order of the rows.
func subjects() []*subject {
	all := slices.Concat(mainSubjects(), metaSubjects(), ipamSubjects())
	for _, s := range all {
		if s.ifName == "" {
			s.ifName = "eth0"
		}
	}
	return all
}

// Types returns the plugin types that the kit can test.
func Types() []string {
	var out []string
	for _, s := range subjects() {
		out = append(out, s.typ)
	}
	return out
}

// mainSubjects returns the plugins that create interfaces.
func mainSubjects() []*subject {
	onUplink := func(extra func(w *world, p *pod) map[string]any) func(w *world, p *pod) map[string]any {
		return func(w *world, p *pod) map[string]any {
			m := map[string]any{"master": uplinkName, "ipam": w.ipam}
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
		{typ: "macvlan", needs: []string{"veth", "macvlan"}, prepareNode: addUplink, conf: onUplink(none)},
		{typ: "ipvlan", needs: []string{"veth", "ipvlan"}, prepareNode: addUplink, conf: onUplink(none)},
		{
			typ: "vlan", needs: []string{"veth", "vlan"}, prepareNode: addUplink,
			conf: onUplink(func(_ *world, p *pod) map[string]any {
				return map[string]any{"vlanId": 100 + p.n}
			}),
		},
		{
			typ: "host-device", needs: []string{"veth"}, prepareNode: addNodeDevice, preparePod: addPodDevice,
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
		s.role, s.delegates, s.exhaust = mainPlugin, true, exhaustRange
	}
	list = append(list, flannelSubject())
	return append(list, &subject{
		typ: "loopback", role: mainPlugin, ifName: "lo", conf: func(*world, *pod) map[string]any { return nil },
	})
}

// uplinkName is the node's uplink for plugins that require a master.
const uplinkName = "kitup0"

func addUplink(w *world) error {
	return w.host.Do(func() error {
		return addVeth(uplinkName, "kitup1", nil)
	})
}

// addVeth creates a veth pair and sets both ends up; the peer may be in another namespace.
func addVeth(name, peer string, peerNS *netns.NS) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	v := &netlink.Veth{LinkAttrs: attrs, PeerName: peer}
	if peerNS != nil {
		v.PeerNamespace = netlink.NsFd(peerNS.Fd())
	}
	if err := netlink.LinkAdd(v); err != nil {
		return fmt.Errorf("veth %s: %w", name, err)
	}
	if err := setUpLink(name); err != nil {
		return err
	}
	if peerNS != nil {
		return peerNS.Do(func() error { return setUpLink(peer) })
	}
	return setUpLink(peer)
}

func setUpLink(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	return netlink.LinkSetUp(l)
}

// addNodeDevice creates the device for configurations without a pod.
func addNodeDevice(w *world) error { return addPodDevice(w, &pod{}) }

// addPodDevice creates the device that is moved to the pod.
func addPodDevice(w *world, p *pod) error {
	return w.host.Do(func() error {
		return addVeth(fmt.Sprintf("kithd%d", p.n), fmt.Sprintf("kithp%d", p.n), nil)
	})
}

// exhaustRange allocates the only address of the range.
func exhaustRange(w *world) error {
	if w.ipam["type"] != hostLocal {
		return errInexhaustible
	}
	w.ipam["rangeStart"], w.ipam["rangeEnd"] = "10.23.0.77", "10.23.0.77"
	_, err := w.addPod()
	return err
}
