// SPDX-License-Identifier: Apache-2.0

package flannel_test

import (
	"bytes"
	"context"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/nettest"
)

// newEtcdCluster creates a cluster whose nodes lease their subnets in etcd.
func newEtcdCluster(t *testing.T, conf string) (*cluster, *apitest.Etcd) {
	t.Helper()
	c := newCluster(t)
	e := apitest.StartEtcd(t, c.hub, netip.MustParseAddr(hubAddr), false)
	c.args = []string{"--etcd-endpoints=" + e.URL, "--ip-masq"}
	c.put(e, "config", conf)
	return c, e
}

// withEtcd calls f with a client of etcd in the hub's namespace.
func (c *cluster) withEtcd(e *apitest.Etcd, f func(context.Context, *clientv3.Client) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{e.URL}, Logger: zap.NewNop(), Context: ctx,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(c.dial)},
	})
	if err == nil {
		defer func() { _ = client.Close() }()
		err = f(ctx, client)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) put(e *apitest.Etcd, key, value string) {
	c.t.Helper()
	c.withEtcd(e, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Put(ctx, "/coreos.com/network/"+key, value)
		return err
	})
}

// leases returns the keys and values below subnets.
func (c *cluster) leases(e *apitest.Etcd) map[string]string {
	c.t.Helper()
	out := map[string]string{}
	c.withEtcd(e, func(ctx context.Context, client *clientv3.Client) error {
		answer, err := client.Get(ctx, "/coreos.com/network/subnets/", clientv3.WithPrefix())
		if err != nil {
			return err
		}
		for _, kv := range answer.Kvs {
			out[strings.TrimPrefix(string(kv.Key), "/coreos.com/network/subnets/")] = string(kv.Value)
		}
		return nil
	})
	return out
}

// TestMixedEtcd: one node with weft's flanneld and one with flannel's, in one network.
func TestMixedEtcd(t *testing.T) {
	needFlanneld(t)
	for _, backend := range []string{"host-gw", "vxlan", "udp"} {
		t.Run(backend, func(t *testing.T) {
			if backend == "udp" {
				needUDP(t)
			}
			testMixed(t, backend)
		})
	}
}

// TestMixedIPIP and TestMixedWireGuard are separate tests, because not every kernel has these tunnels.
func TestMixedIPIP(t *testing.T) {
	nettest.Need(t, "ipip")
	testMixed(t, "ipip")
}

func TestMixedWireGuard(t *testing.T) {
	nettest.Need(t, "wireguard")
	testMixed(t, "wireguard")
}

func testMixed(t *testing.T, backend string) {
	t.Helper()
	needFlanneld(t)
	c, _ := newEtcdCluster(t, `{"Network": "10.5.0.0/16", "Backend": {"Type": "`+backend+`"}}`)
	a, b := c.node(1), c.node(2)
	a.start(weft)
	b.start(flanneld)
	a.addPod()
	b.addPod()
	c.reach(a, b)
}

// needUDP skips the test without a tun device, or if flannel's flanneld was built without cgo.
func needUDP(t *testing.T) {
	t.Helper()
	nettest.Need(t, "tap")
	program, err := os.ReadFile(needFlanneld(t))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(program, []byte("flannel/pkg/backend/udp.")) {
		nettest.SkipMissing(t, "flannel's flanneld was built without cgo and has no backend udp")
	}
}

// TestReplaceEtcd: weft's flanneld replaces flannel's, and flannel's replaces weft's.
func TestReplaceEtcd(t *testing.T) {
	needFlanneld(t)
	for _, backend := range []string{"host-gw", "vxlan"} {
		t.Run(backend, func(t *testing.T) { testReplace(t, backend) })
	}
}

// TestReplaceIPIP and TestReplaceWireGuard are separate tests, because not every kernel has these tunnels.
func TestReplaceIPIP(t *testing.T) {
	nettest.Need(t, "ipip")
	testReplace(t, "ipip")
}

func TestReplaceWireGuard(t *testing.T) {
	nettest.Need(t, "wireguard")
	testReplace(t, "wireguard")
}

func testReplace(t *testing.T, backend string) {
	t.Helper()
	needFlanneld(t)
	c, e := newEtcdCluster(t, `{"Network": "10.5.0.0/16", "Backend": {"Type": "`+backend+`"}}`)
	a, b := c.node(1), c.node(2)
	a.start(flanneld)
	b.start(flanneld)
	a.addPod()
	b.addPod()
	c.reach(a, b)
	before, file, device := c.leases(e), a.subnetEnv(), a.device(backend)
	flow := c.connect(a, b)
	become := func(kind string) {
		a.stop()
		a.start(kind, "--healthz-port=8081")
		c.until("ready", a.ready)
		flow.awaitRounds(50)
		c.expectEqual(kind+": leases", before, c.leases(e))
		c.expectEqual(kind+": subnet.env", file, a.subnetEnv())
		c.expectEqual(kind+": device", device, a.device(backend))
		c.reach(a, b)
	}
	for _, kind := range []string{weft, flanneld, weft} {
		become(kind)
	}
	if backend == "wireguard" {
		// flannel's flanneld deletes the device at exit and at start, which loses packets
		flow.close()
		flow = c.connect(a, b)
		become(weft)
	}
	flow.closeAndVerify()
}

// TestEtcdAway: nothing is removed while etcd is unavailable, and changes meanwhile are applied afterwards.
func TestEtcdAway(t *testing.T) {
	c, e := newEtcdCluster(t, `{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}`)
	a, b := c.node(1), c.node(2)
	e.Stop()
	a.launch(weft)
	b.launch(weft)
	time.Sleep(time.Second) // they wait for etcd
	a.mustRun()
	if _, err := os.Stat(a.subnetFile()); err == nil {
		t.Fatal("a subnet without etcd")
	}
	e.Restart()
	for _, n := range []*node{a, b} {
		n.awaitSubnet()
		n.addPod()
	}
	c.reach(a, b)
	flow := c.connect(a, b)
	before := c.leases(e)
	e.Stop()
	flow.awaitRounds(100)
	c.reach(a, b)
	a.stop() // and one of them starts while etcd is unavailable
	a.launch(weft)
	flow.awaitRounds(100)
	e.Restart()
	c.until("the same leases", func() bool { return len(c.leases(e)) == 2 })
	c.expectEqual("leases", before, c.leases(e))
	flow.awaitRounds(10)
	d := c.node(3)
	d.start(weft)
	d.addPod()
	c.reach(a, d)
	flow.closeAndVerify()
}

// TestAddressChanged: peers reach a node whose address changes, and it keeps its subnet.
func TestAddressChanged(t *testing.T) {
	c, e := newEtcdCluster(t, `{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}`)
	a, b := c.node(1), c.node(2)
	for _, n := range []*node{a, b} {
		n.start(weft)
		n.addPod()
	}
	c.reach(a, b)
	before := slices.Sorted(maps.Keys(c.leases(e)))
	ip(t, a.ns, "addr del "+a.addr()+"/24 dev eth0", "addr add 192.168.7.51/24 dev eth0",
		"route replace default via "+hubAddr)
	c.until("the peer's FDB entry", func() bool {
		return strings.Contains(nettest.Run(t, b.ns, "bridge", "fdb", "show", "dev", "flannel.1"), "dst 192.168.7.51")
	})
	c.reach(a, b)
	c.expectEqual("subnets", before, slices.Sorted(maps.Keys(c.leases(e))))
	ip(t, b.ns, "link set eth0 mtu 1400")
	c.until("the new MTU in subnet.env", func() bool { b.awaitSubnet(); return b.env.MTU == 1350 })
}
