// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"context"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/nettest"
	carrier "github.com/weft-net/weft/internal/node/tunnel/udp"
)

// disarm switches the guard off: the agents end, their rules go.
func (c *campaign) disarm() {
	for _, n := range c.nodes {
		n.kill()
		n.endTunnels()
	}
	c.flush()
	switch c.backend {
	case "udp":
		c.carry()
	case "wireguard":
		c.carryWireGuard()
	}
}

// carry does what the agents did for the back end udp, for every sender and with any source.
func (c *campaign) carry() {
	all := carrier.Accept{
		Senders: []carrier.Sender{
			{Prefixes: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}},
		},
	}
	for _, p := range c.pods {
		all.Senders[0].Addrs = append(all.Senders[0].Addrs, p.addrs...)
	}
	for _, n := range c.nodes {
		all.Senders[0].Addrs = append(all.Senders[0].Addrs, n.addrs...)
	}
	for i, n := range c.nodes {
		for j, link := range []string{"flannel0", "flannel0-v6"} {
			path, err := carrier.Open(carrier.Config{
				NS: n.ns, Link: link, Listen: netip.AddrPortFrom(n.addrs[j], 8285), Now: time.Now,
			})
			if err != nil {
				c.Fatal(err)
			}
			other := c.nodes[1-i]
			path.SetPeers([]carrier.Peer{
				{Prefix: netip.MustParsePrefix(other.podCIDRs[j]), To: netip.AddrPortFrom(other.addrs[j], 8285)},
			}, all)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- path.Run(ctx) }()
			c.Cleanup(func() {
				cancel()
				if err := <-done; err != nil {
					c.Error(err)
				}
			})
		}
	}
}

func (c *campaign) flush() {
	for _, n := range c.nodes {
		nettest.Run(c, n.ns, "nft", "flush", "ruleset")
	}
	c.services()
	for _, p := range c.pods {
		nettest.Run(c, p.ns, "nft", "flush", "ruleset")
	}
}
