// SPDX-License-Identifier: Apache-2.0

package flannel_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestRenumbered: a node whose address is replaced, in the ways in which people and DHCP clients do that, publishes the
// new one and says so. The connection to etcd was made from the old address.
func TestRenumbered(t *testing.T) {
	const old, now = "192.168.7.1", "192.168.7.51"
	back := "route replace default via " + hubAddr
	for name, how := range map[string][]string{
		"taken and given": {"addr del " + old + "/24 dev eth0", "addr add " + now + "/24 dev eth0", back},
		// The kernel takes the second address along with the first.
		"given beside it, and again": {
			"addr add " + now + "/24 dev eth0", "addr del " + old + "/24 dev eth0", "addr add " + now + "/24 dev eth0", back,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, e := leased(t, `{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}`)
			a, b := c.node(1), c.node(2)
			for _, n := range []*node{a, b} {
				n.start(weft)
				n.podded()
			}
			c.reach(a, b)
			ip(t, a.ns, how...)
			c.until("the lease has the new address", func() bool {
				all := fmt.Sprint(c.leases(e))
				return strings.Contains(all, `"`+now+`"`) && !strings.Contains(all, `"`+old+`"`)
			})
			c.reach(a, b)
			log, err := os.ReadFile(a.run.log)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range []string{"interface changed", "lease is written"} {
				if !strings.Contains(string(log), line) {
					t.Errorf("the log does not say %q", line)
				}
			}
			if strings.Contains(string(log), "DeadlineExceeded") {
				t.Error("etcd was asked from the address that is gone")
			}
		})
	}
}

// renumbered: a node whose address is replaced says so to the API server at once, and goes on to follow the nodes. A
// connection from the old address would be found dead by its keepalive, after 45 seconds.
func (s *kubed) renumbered(string) {
	const old, now, soon = "192.168.7.1", "192.168.7.51", 25 * time.Second
	a, b := s.node(1, nil), s.node(2, nil)
	for _, n := range []*node{a, b} {
		n.start(weft)
		n.podded()
	}
	s.reach(a, b)
	begin := time.Now()
	ip(s.t, a.ns, "addr del "+old+"/24 dev eth0", "addr add "+now+"/24 dev eth0", "route replace default via "+hubAddr)
	s.until("the annotation has the new address", func() bool {
		said, _ := s.said(a)
		return said["flannel.alpha.coreos.com/public-ip"] == now
	})
	c := s.node(3, nil)
	c.start(weft)
	c.podded()
	s.reach(a, b)
	s.reach(a, c)
	if took := time.Since(begin); took > soon {
		s.t.Errorf("the new address is said, and a new node known, after %s", took)
	}
}

// TestWithoutIPv4: flannel's own daemon takes any lease without an IPv4 address for its own, but not that of a node
// with weft's: neither when it comes to one, nor when it is started again beside one. (It makes no way to other nodes'
// pods there: it wants IPv4 data in their leases, its own kind's too.)
func TestWithoutIPv4(t *testing.T) {
	needReal(t)
	const conf = `{"EnableIPv4": false, "EnableIPv6": true, "IPv6Network": "fd05::/56", "Backend": {"Type": "vxlan"}}`
	t.Run("beside it", func(t *testing.T) {
		c, e := leased(t, conf)
		a, b := c.node(1), c.node(2)
		b.start(real)
		a.start(weft)
		before := c.leases(e)
		if len(before) != 2 {
			t.Fatalf("leases %v, want one for each node", before)
		}
		for range 4 { // it would choose one of the two
			b.stop()
			b.start(real)
			c.same("leases", before, c.leases(e))
		}
	})
	t.Run("before it", func(t *testing.T) {
		c, e := leased(t, conf)
		a, b := c.node(1), c.node(2)
		a.start(weft)
		before := c.leases(e)
		b.launch(real)
		// It finds no second place in 0.0.0.0/0, which it wants beside the IPv6 subnet, and waits for ever.
		c.until("flannel's own daemon chooses", func() bool {
			log, err := os.ReadFile(b.run.log)
			return err == nil && strings.Contains(string(log), "subnet in range") || len(c.leases(e)) != 1
		})
		c.same("leases", before, c.leases(e))
	})
}
