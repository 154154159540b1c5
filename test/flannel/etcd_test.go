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

// leased is a cluster whose nodes lease their subnets in an etcd.
func leased(t *testing.T, conf string) (*cluster, *apitest.Etcd) {
	t.Helper()
	c := newCluster(t)
	e := apitest.StartEtcd(t, c.hub, netip.MustParseAddr(hubAddr), false)
	c.args = []string{"--etcd-endpoints=" + e.URL, "--ip-masq"}
	c.put(e, "config", conf)
	return c, e
}

// ask uses etcd from the hub.
func (c *cluster) ask(e *apitest.Etcd, f func(context.Context, *clientv3.Client) error) {
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
	c.ask(e, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Put(ctx, "/coreos.com/network/"+key, value)
		return err
	})
}

// leases are keys and values below subnets.
func (c *cluster) leases(e *apitest.Etcd) map[string]string {
	c.t.Helper()
	out := map[string]string{}
	c.ask(e, func(ctx context.Context, client *clientv3.Client) error {
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

// TestMixedEtcd: one node with weft's daemon and one with flannel's own, in one network.
func TestMixedEtcd(t *testing.T) {
	needReal(t)
	for _, backend := range []string{"host-gw", "vxlan", "udp"} {
		t.Run(backend, func(t *testing.T) {
			if backend == "udp" {
				needUDP(t)
			}
			mixed(t, backend)
		})
	}
}

// TestMixedIPIP and TestMixedWireGuard have names of their own: not every kernel has these tunnels.
func TestMixedIPIP(t *testing.T) {
	nettest.Need(t, "ipip")
	mixed(t, "ipip")
}

func TestMixedWireGuard(t *testing.T) {
	nettest.Need(t, "wireguard")
	mixed(t, "wireguard")
}

func mixed(t *testing.T, backend string) {
	t.Helper()
	needReal(t)
	c, _ := leased(t, `{"Network": "10.5.0.0/16", "Backend": {"Type": "`+backend+`"}}`)
	a, b := c.node(1), c.node(2)
	a.start(weft)
	b.start(real)
	a.podded()
	b.podded()
	c.reach(a, b)
}

// needUDP skips the test where there is no tun device, or flannel's own daemon was built without a C compiler.
func needUDP(t *testing.T) {
	t.Helper()
	nettest.Need(t, "tap")
	program, err := os.ReadFile(needReal(t))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(program, []byte("flannel/pkg/backend/udp.")) {
		nettest.Without(t, "flannel's own flanneld was built without a C compiler and has no back end udp")
	}
}

// TestTakeOverEtcd: weft's daemon takes the place of flannel's own, and gives it back.
func TestTakeOverEtcd(t *testing.T) {
	needReal(t)
	for _, backend := range []string{"host-gw", "vxlan"} {
		t.Run(backend, func(t *testing.T) { takeOver(t, backend) })
	}
}

// TestTakeOverIPIP and TestTakeOverWireGuard have names of their own: not every kernel has these tunnels.
func TestTakeOverIPIP(t *testing.T) {
	nettest.Need(t, "ipip")
	takeOver(t, "ipip")
}

func TestTakeOverWireGuard(t *testing.T) {
	nettest.Need(t, "wireguard")
	takeOver(t, "wireguard")
}

func takeOver(t *testing.T, backend string) {
	t.Helper()
	needReal(t)
	c, e := leased(t, `{"Network": "10.5.0.0/16", "Backend": {"Type": "`+backend+`"}}`)
	a, b := c.node(1), c.node(2)
	a.start(real)
	b.start(real)
	a.podded()
	b.podded()
	c.reach(a, b)
	before, file, device := c.leases(e), a.file(), a.device(backend)
	flow := c.connect(a, b)
	become := func(kind string) {
		a.stop()
		a.start(kind, "--healthz-port=8081")
		c.until("ready", a.ready)
		flow.goesOn(50)
		c.same(kind+": leases", before, c.leases(e))
		c.same(kind+": subnet.env", file, a.file())
		c.same(kind+": device", device, a.device(backend))
		c.reach(a, b)
	}
	for _, kind := range []string{weft, real, weft} {
		become(kind)
	}
	if backend == "wireguard" {
		// flannel's own deletes the device when it ends and when it starts, and packets are lost with it
		flow.close()
		flow = c.connect(a, b)
		become(weft)
	}
	flow.end()
}

// TestEtcdAway: nothing is torn down while etcd is away, and what happened meanwhile is made up for.
func TestEtcdAway(t *testing.T) {
	c, e := leased(t, `{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}`)
	a, b := c.node(1), c.node(2)
	e.Stop()
	a.launch(weft)
	b.launch(weft)
	time.Sleep(time.Second) // they wait
	a.alive()
	if _, err := os.Stat(a.subnetFile()); err == nil {
		t.Fatal("a subnet, and nobody who gave it")
	}
	e.Again()
	for _, n := range []*node{a, b} {
		n.await()
		n.podded()
	}
	c.reach(a, b)
	flow := c.connect(a, b)
	before := c.leases(e)
	e.Stop()
	flow.goesOn(100)
	c.reach(a, b)
	a.stop() // and one of them starts while etcd is away
	a.launch(weft)
	flow.goesOn(100)
	e.Again()
	c.until("the same leases", func() bool { return len(c.leases(e)) == 2 })
	c.same("leases", before, c.leases(e))
	flow.goesOn(10)
	d := c.node(3)
	d.start(weft)
	d.podded()
	c.reach(a, d)
	flow.end()
}

// TestMoved: a node that gets another address is found by its peers, with the subnet that it has.
func TestMoved(t *testing.T) {
	c, e := leased(t, `{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}`)
	a, b := c.node(1), c.node(2)
	for _, n := range []*node{a, b} {
		n.start(weft)
		n.podded()
	}
	c.reach(a, b)
	before := slices.Sorted(maps.Keys(c.leases(e)))
	ip(t, a.ns, "addr del "+a.addr()+"/24 dev eth0", "addr add 192.168.7.51/24 dev eth0",
		"route replace default via "+hubAddr)
	c.until("the peer knows", func() bool {
		return strings.Contains(nettest.Run(t, b.ns, "bridge", "fdb", "show", "dev", "flannel.1"), "dst 192.168.7.51")
	})
	c.reach(a, b)
	c.same("subnets", before, slices.Sorted(maps.Keys(c.leases(e))))
	ip(t, b.ns, "link set eth0 mtu 1400")
	c.until("the new MTU in subnet.env", func() bool { b.await(); return b.env.MTU == 1350 })
}
