// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/nettest"
)

// interfaces: a pod that may send nothing makes another one of its interface, and sends in its own name and in that of
// others. What the node enforces does not go by what the pod calls its end.
func interfaces(c *campaign) (sent, arrived, control int) {
	c.declare("shape", c.nodes[0], map[string]string{"app": "mute"})
	p := c.add("shape", c.nodes[0], c.podNS("shape"))
	root := newSender(c, p.ns, netAdmin)
	root.run("nft flush ruleset")
	router := c.stage(c.pods["mallory"], netAdmin).router
	var shots []shot
	fire := func(what, link string, from mac) {
		m := &magazine{next: &c.next}
		for i := range 2 {
			for _, src := range []netip.Addr{p.addrs[i], c.pods["friend"].addrs[i], c.pods["near"].addrs[i]} {
				for _, dst := range []netip.Addr{c.pods["far"].addrs[i], c.pods["guest"].addrs[i]} {
					m.add(what, func(w []byte) send {
						return send{
							Link:  link,
							Frame: ether(router, from, kindOf(src), datagram(src, dst, slices.Concat(w, make([]byte, 100))).bytes()),
						}
					})
				}
			}
		}
		for _, s := range m.shots {
			root.do(s.send)
		}
		shots = append(shots, m.shots...)
	}
	all := func() {
		fire("as it was", "eth0", p.mac)
		root.run("ip link set eth0 mtu 9000")
		fire("with a larger MTU", "eth0", p.mac)
		root.run("ip link set eth0 down")
		root.run("ip link set eth0 name other")
		root.run("ip link set other up")
		fire("with another name", "other", p.mac)
		root.run("ip link set other address 02:00:00:00:00:77")
		fire("with another Ethernet address", "other", mac{2, 0, 0, 0, 0, 0x77})
		root.run("ip addr add " + c.pods["friend"].addrs[0].String() + "/32 dev other")
		fire("with an address of another pod", "other", p.mac)
		root.run("ip addr del " + c.pods["friend"].addrs[0].String() + "/32 dev other")
		root.run("ip link set other down")
		nettest.IP(c, p.ns, "link set other address "+macText(p.mac))
		nettest.IP(c, p.ns, "link set other name eth0")
		nettest.IP(c, p.ns, "link set eth0 mtu 1400 up")
	}
	all()
	other := c.podNS("elsewhere")
	nettest.IP(c, p.ns, "link set eth0 netns "+other.Path())
	nettest.IP(c, other, "link set eth0 up")
	inside := root
	root = newSender(c, other, netAdmin)
	fire("in another namespace", "eth0", p.mac)
	nettest.IP(c, other, "link set eth0 netns "+p.ns.Path())
	root = inside
	nettest.IP(c, p.ns, "link set eth0 up")
	anew := c.remade(&shots)
	c.fence()
	for _, s := range shots {
		if at := c.ears.at(s.word, "pod:far", "pod:guest", "wire"); len(at) > 0 {
			c.Logf("arrived: %s at %v", s.what, at)
			arrived++
		}
	}
	sent = len(shots)
	c.del(anew)
	c.disarm()
	shots = nil
	c.until("the same without the guard", func() bool {
		c.flush()
		all()
		for _, s := range shots {
			if len(c.ears.at(s.word, "pod:far", "pod:guest")) > 0 {
				control++
			}
		}
		return control > 0
	})
	return sent, arrived, control
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
				return send{Link: link, Frame: ether(router, p.mac, kindOf(src), datagram(src, dst, w).bytes())}
			})
		}
	}
	for _, s := range m.shots {
		root.do(s.send)
	}
	*shots = append(*shots, m.shots...)
	return p
}
