// SPDX-License-Identifier: Apache-2.0

package flannel_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestRenumbered: a node whose address is replaced, as administrators and DHCP clients do it, publishes the new one and
// logs it. The connection to etcd was opened from the old address.
func TestRenumbered(t *testing.T) {
	const old, now = "192.168.7.1", "192.168.7.51"
	back := "route replace default via " + hubAddr
	for name, how := range map[string][]string{
		"taken and given": {"addr del " + old + "/24 dev eth0", "addr add " + now + "/24 dev eth0", back},
		// The kernel deletes secondary addresses with the primary one.
		"given beside it, and again": {
			"addr add " + now + "/24 dev eth0", "addr del " + old + "/24 dev eth0", "addr add " + now + "/24 dev eth0", back,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, e := newEtcdCluster(t, `{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}`)
			a, b := c.node(1), c.node(2)
			for _, n := range []*node{a, b} {
				n.start(weft)
				n.addPod()
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
			for _, line := range []string{"interface changed", "published values of the lease were updated"} {
				if !strings.Contains(string(log), line) {
					t.Errorf("the log lacks %q", line)
				}
			}
			if strings.Contains(string(log), "DeadlineExceeded") {
				t.Error("a connection to etcd still uses the old address")
			}
		})
	}
}

// testRenumbered: a node whose address is replaced immediately updates its annotation, and continues to watch nodes.
// The keepalive would detect a dead connection from the old address after 45 seconds.
func (s *kubeCluster) testRenumbered(string) {
	const old, now, soon = "192.168.7.1", "192.168.7.51", 40 * time.Second
	a, b := s.node(1, nil), s.node(2, nil)
	for _, n := range []*node{a, b} {
		n.start(weft)
		n.addPod()
	}
	s.reach(a, b)
	begin := time.Now()
	ip(s.t, a.ns, "addr del "+old+"/24 dev eth0", "addr add "+now+"/24 dev eth0", "route replace default via "+hubAddr)
	s.until("the annotation has the new address", func() bool {
		said, _ := s.nodeState(a)
		return said["flannel.alpha.coreos.com/public-ip"] == now
	})
	starts := time.Now()
	c := s.node(3, nil)
	c.start(weft)
	c.addPod()
	begin = begin.Add(time.Since(starts))
	s.reach(a, b)
	s.reach(a, c)
	if took := time.Since(begin); took > soon {
		s.t.Errorf("the new address is published, and a new node is reached, after %s", took)
	}
}

// TestWithoutIPv4: flannel's flanneld uses any lease without an IPv4 address as its own, but not that of a node with
// weft's: neither at its first start nor at a restart. (It adds no routes to other nodes' pods: it requires IPv4 data
// in all leases.)
func TestWithoutIPv4(t *testing.T) {
	needFlanneld(t)
	const conf = `{"EnableIPv4": false, "EnableIPv6": true, "IPv6Network": "fd05::/56", "Backend": {"Type": "vxlan"}}`
	t.Run("started after", func(t *testing.T) {
		c, e := newEtcdCluster(t, conf)
		a, b := c.node(1), c.node(2)
		b.start(flanneld)
		a.start(weft)
		before := c.leases(e)
		if len(before) != 2 {
			t.Fatalf("leases %v, want one for each node", before)
		}
		for range 4 { // it could use either lease
			b.stop()
			b.start(flanneld)
			c.expectEqual("leases", before, c.leases(e))
		}
	})
	t.Run("started before", func(t *testing.T) {
		c, e := newEtcdCluster(t, conf)
		a, b := c.node(1), c.node(2)
		a.start(weft)
		before := c.leases(e)
		b.launch(flanneld)
		// It finds no second subnet in 0.0.0.0/0, which it requires in addition to the IPv6 subnet, and waits forever.
		c.until("flannel's flanneld leases a subnet", func() bool {
			log, err := os.ReadFile(b.run.log)
			return err == nil && strings.Contains(string(log), "subnet in range") || len(c.leases(e)) != 1
		})
		c.expectEqual("leases", before, c.leases(e))
	})
}
