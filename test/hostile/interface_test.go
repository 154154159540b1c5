// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/nettest/forge"
)

// interfaces: a pod that may send nothing makes another one of its interface, and sends in its own name and in that of
// others. What is enforced outside of the pod does not go by what the pod calls its end.
func interfaces(c *campaign) (sent, arrived, control int) {
	c.declare("shape", c.nodes[0], map[string]string{"app": "mute"})
	p := c.add("shape", c.nodes[0], c.podNS("shape"))
	f := &shaper{campaign: c, p: p, root: newSender(c, p.ns, netAdmin)}
	f.root.run("nft flush ruleset")
	f.all()
	var remade *pod
	if c.onWire() {
		f.second()
	} else {
		f.moved()
		remade = c.remade(&f.shots)
	}
	c.fence()
	places := []string{"pod:far", "pod:guest", "wire"}
	if c.onWire() { // what the node cannot enforce, the receiver does
		places = []string{"pod:far"}
	}
	for _, s := range f.shots {
		if at := c.hears(s.word, places...); len(at) > 0 {
			c.Logf("arrived: %s at %v", s.what, at)
			arrived++
		}
	}
	sent = len(f.shots)
	if remade != nil {
		c.del(remade)
	}
	c.disarm()
	f.shots = nil
	c.until("the same without the guard", func() bool {
		c.flush()
		f.all()
		for _, s := range f.shots {
			if len(c.hears(s.word, "pod:far", "pod:guest")) > 0 {
				control++
			}
		}
		return control > 0
	})
	return sent, arrived, control
}

// shaper is a pod that changes its interface and sends over it.
type shaper struct {
	*campaign
	p     *pod
	root  *sender
	shots []shot
}

// fire sends in the pod's own name and in those of others. Where the node does not enforce what the pod sends, receivers
// take what their policies allow, in whatever name: then it is what no policy allows.
func (f *shaper) fire(what, link string, from mac) {
	m, s := &magazine{next: &f.next}, f.stage(f.p, netAdmin)
	for i := range 2 {
		sources, to := []string{"shape", "near", "friend"}, []string{"far", "guest"}
		if f.onWire() {
			sources, to = sources[:2], to[:1]
		}
		for _, name := range sources {
			for _, receiver := range to {
				src, dst := f.pods[name].addrs[i], f.pods[receiver].addrs[i]
				m.add(what, func(w []byte) send {
					return send{
						Link:  link,
						Frame: forge.Ether(s.way(dst), from, forge.KindOf(src), datagram(src, dst, slices.Concat(w, make([]byte, 100))).bytes()),
					}
				})
			}
		}
	}
	for _, s := range m.shots {
		f.root.do(s.send)
	}
	f.shots = append(f.shots, m.shots...)
}

// all changes the interface in every way, and leaves it as it was.
func (f *shaper) all() {
	own, peer := f.p.mac, "friend"
	if f.design == "ipvlan" { // which refuses one of its own node
		peer = "guest"
	}
	address := f.pods[peer].addrs[0].String() + "/32"
	f.fire("as it was", "eth0", own)
	if !f.onWire() { // whose link to the node's interface has its MTU
		f.root.run("ip link set eth0 mtu 9000")
		f.fire("with a larger MTU", "eth0", own)
	}
	f.root.run("ip link set eth0 down")
	f.root.run("ip link set eth0 name other")
	f.root.run("ip link set other up")
	f.fire("with another name", "other", own)
	if f.design != "ipvlan" { // which has its node's
		f.root.run("ip link set other address 02:00:00:00:00:77")
		f.fire("with another Ethernet address", "other", mac{2, 0, 0, 0, 0, 0x77})
	}
	f.root.run("ip addr add " + address + " dev other")
	f.fire("with an address of another pod", "other", own)
	f.root.run("ip addr del " + address + " dev other")
	f.root.run("ip link set other down")
	if f.design != "ipvlan" {
		nettest.IP(f, f.p.ns, "link set other address "+macText(own))
	}
	nettest.IP(f, f.p.ns, "link set other name eth0")
	nettest.IP(f, f.p.ns, "link set eth0 mtu 1400 up")
}

// moved sends from another namespace, into which the interface is moved.
func (f *shaper) moved() {
	other, inside := f.podNS("elsewhere"), f.root
	nettest.IP(f, f.p.ns, "link set eth0 netns "+other.Path())
	nettest.IP(f, other, "link set eth0 up")
	f.root = newSender(f, other, netAdmin)
	f.fire("in another namespace", "eth0", f.p.mac)
	nettest.IP(f, other, "link set eth0 netns "+f.p.ns.Path())
	f.root = inside
	nettest.IP(f, f.p.ns, "link set eth0 up")
}

// second sends over another interface of the kind, which the pod makes in addition to its own.
func (f *shaper) second() {
	f.root.run("ip link add link eth0 name second type " + f.design)
	f.root.run("ip link set second up")
	f.fire("over a second one", "second", linkMAC(f, f.p.ns, "second"))
	f.root.run("ip link del second")
}

// remade is a pod that deletes its interface and makes one of the same name, with the same addresses.
func (c *campaign) remade(shots *[]shot) *pod {
	c.declare("anew", c.nodes[0], map[string]string{"app": "mute"})
	p := c.add("anew", c.nodes[0], c.podNS("anew"))
	root, router := newSender(c, p.ns, netAdmin), c.stage(c.pods["mallory"], netAdmin).router
	root.run("nft flush ruleset")
	c.until("an interface that the pod has made", func() bool {
		// the agent may put back what was deleted before the pod makes its own
		_ = root.do(send{Run: strings.Fields("ip link del eth0")})
		return root.do(send{
			Run: strings.Fields("ip link add eth0 address " + macText(p.mac) + " type veth peer name inner"),
		})[0] == ""
	})
	root.run("ip link set inner up")
	root.run("ip link set eth0 up")
	m := &magazine{next: &c.next}
	for i := range 2 {
		for _, link := range []string{"eth0", "inner"} {
			m.add("over an interface that was made again", func(w []byte) send {
				src, dst := p.addrs[i], c.pods["guest"].addrs[i]
				return send{Link: link, Frame: forge.Ether(router, p.mac, forge.KindOf(src), datagram(src, dst, w).bytes())}
			})
		}
	}
	for _, s := range m.shots {
		root.do(s.send)
	}
	*shots = append(*shots, m.shots...)
	return p
}
