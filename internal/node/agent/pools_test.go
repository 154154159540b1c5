// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// two are two nodes on one network, with their agents; the datastore is files.
type two struct {
	t     *testing.T
	store *dir.Store
	nodes []*world
}

// newTwo creates nodes n1 and n2 with an agent of that configuration each.
func newTwo(t *testing.T, network string) two {
	t.Helper()
	path := t.TempDir()
	s, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	p := two{t: t, store: s, nodes: []*world{newWorld(t), newWorld(t)}}
	nettest.Run(t, p.nodes[0].node, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns",
		p.nodes[1].node.Path())
	for i, w := range p.nodes {
		name := fmt.Sprintf("n%d", i+1)
		v4, v6 := fmt.Sprintf("192.168.77.%d", i+1), fmt.Sprintf("fd00:77::%d", i+1)
		nettest.Run(t, w.node, "ip", "addr", "add", v4+"/24", "dev", "eth0")
		nettest.Run(t, w.node, "ip", "addr", "add", v6+"/64", "dev", "eth0", "nodad")
		nettest.Run(t, w.node, "ip", "link", "set", "eth0", "up")
		o, err := store.NodeObject(model.Node{
			Name: name, Addrs: []netip.Addr{netip.MustParseAddr(v4), netip.MustParseAddr(v6)},
			PodCIDRs: []netip.Prefix{
				netip.MustParsePrefix(fmt.Sprintf("10.99.%d.0/24", i+1)), netip.MustParsePrefix(fmt.Sprintf("fd99:%d::/64", i+1)),
			},
		})
		if err == nil {
			_, err = s.Create(t.Context(), o)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.args = []string{
			"--node", name, "--store-dir", path, "--config", w.path("weft.yaml"), "--address-dir", w.path("addresses"),
		}
		w.configure(network)
		w.start()
	}
	if strings.Contains(network, "encapsulation: vxlan") && !strings.Contains(network, "publish: false") {
		p.settled("flannel.1", "4")
		if strings.Contains(network, "fd77:") {
			p.settled("flannel-v6.1", "6")
		}
	}
	return p
}

// settled waits until both nodes have the random VTEP MAC addresses that they choose when they see each other, and know
// the other's. A node whose agent does not run at that moment continues with the other's previous address.
func (p two) settled(device, family string) {
	p.t.Helper()
	for i, w := range p.nodes {
		name := fmt.Sprintf("n%d", i+1)
		plain, other := state.SeedMAC("vtep/"+family+"/"+name).String(), p.nodes[1-i].node
		p.until("the other node knows the address that "+name+" took for "+device, func() bool {
			mac := macOf(w.node, device)
			known, _ := nettest.Try(other, "bridge", "fdb", "show", "dev", device)
			return mac != "" && mac != plain && strings.Contains(known, mac)
		})
	}
}

// configure writes the configuration with that section network.
func (w *world) configure(network string) {
	w.t.Helper()
	w.configured(fmt.Sprintf("install: {confDir: %q}\nnetwork: {mode: cluster, %s}\n", w.path("net.d"), network))
}

func (p two) until(what string, ok func() bool) {
	p.t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			p.t.Fatalf("not within a minute: %s\n%s\n%s", what, p.nodes[0].log(), p.nodes[1].log())
		}
	}
}

// own returns the configuration that the agent has written to the runtime's directory.
func (w *world) own() (*libcni.NetworkConfigList, error) {
	b, err := os.ReadFile(w.path("net.d", "00-weft.conflist"))
	if err != nil {
		return nil, err
	}
	return libcni.NetworkConfFromBytes(b)
}

// pod starts a pod on the node's own network.
func (p two) pod(w *world, id string) (*netns.NS, []netip.Addr) {
	p.t.Helper()
	var list *libcni.NetworkConfigList
	p.until("the network's configuration", func() bool {
		l, err := w.own()
		list = l
		return err == nil
	})
	ns := nettest.NS(p.t, id)
	var got *current.Result
	w.whole("ADD", func() (err error) { // the first block may take longer than an ADD waits
		if got, err = w.add(list, id, ns); err != nil && code(err) != 11 {
			p.t.Fatalf("%v\n%s", err, w.log())
		}
		return err
	})
	var addrs []netip.Addr
	for _, ip := range got.IPs {
		a, _ := netip.AddrFromSlice(ip.Address.IP)
		addrs = append(addrs, a.Unmap())
	}
	return ns, addrs
}

func (p two) reaches(from *netns.NS, to []netip.Addr) {
	p.t.Helper()
	for _, a := range to {
		p.until(fmt.Sprintf("%s answers", a), func() bool {
			_, err := nettest.Try(from, "ping", "-n", "-c1", "-W1", a.String())
			return err == nil
		})
	}
}

const twoPools = "pools: [{cidr: 10.77.0.0/24, blockSize: 28, encapsulation: vxlan}, {name: six, cidr: \"fd77::/112\", blockSize: 124, encapsulation: vxlan}]"

// TestOwnNetworkFromPools: the configuration has pools, the agents create them, claim blocks of them, allocate pod
// addresses and route them; also from node to pod. A killed agent continues with its blocks.
func TestOwnNetworkFromPools(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "vxlan")
	p := newTwo(t, twoPools)
	n1, n2 := p.nodes[0], p.nodes[1]
	pod1, addrs1 := p.pod(n1, "pod1")
	pod2, addrs2 := p.pod(n2, "pod2")
	if len(addrs1) != 2 || len(addrs2) != 2 {
		t.Fatalf("addresses %v and %v", addrs1, addrs2)
	}
	p.reaches(pod1, addrs2)
	p.reaches(pod2, addrs1)
	p.reaches(n1.node, addrs2)
	if mtu := nettest.Run(t, pod1, "ip", "link", "show", "eth0"); !strings.Contains(mtu, "mtu 1430") {
		t.Errorf("the pod's link: %s", mtu)
	}
	objects, err := p.store.List("")
	if err != nil {
		t.Fatal(err)
	}
	c, problems := store.Cluster(objects)
	if len(problems) > 0 || len(c.Pools) != 2 || c.Pools[0].Name != "pool-10-77-0-0-24" || c.Pools[1].Name != "six" ||
		!c.Pools[0].IsClusterPool() {
		t.Errorf("pools %+v %v", c.Pools, problems)
	}
	for i, addrs := range [][]netip.Addr{addrs1, addrs2} {
		for _, a := range addrs {
			if !slices.ContainsFunc(c.Blocks, func(b model.AddressBlock) bool {
				return b.Node == fmt.Sprintf("n%d", i+1) && b.CIDR.Contains(a)
			}) {
				t.Errorf("%s is of no block of node %d: %+v", a, i+1, c.Blocks)
			}
		}
	}
	addrs := func() string { return tunnelAddrs(t, n1) }
	before := addrs()
	if strings.Count(before, " ") < 1 || strings.Contains(before, addrs1[0].String()+"/") {
		t.Errorf("the tunnels' own addresses: %q, the pod has %v", before, addrs1)
	}
	n1.kill()
	p.reaches(pod1, addrs2)
	n1.start()
	p.until("the same addresses of the tunnels", func() bool { return addrs() == before })
	_, addrs3 := p.pod(n1, "pod3")
	for _, a := range addrs3 {
		if strings.Contains(before, a.String()+"/") || slices.Contains(addrs1, a) {
			t.Errorf("%s is given twice: tunnels %s, pod1 %v", a, before, addrs1)
		}
	}
	p.reaches(pod2, addrs3)
	if log := n1.log(); strings.Contains(log, "no node has a route to it") {
		t.Errorf("the nodes have routes to the pools' addresses, and the agent logs: %s", log)
	}
}

var inet = regexp.MustCompile(`inet6? (10\.77\.\S+|fd77\S+)`)

// tunnelAddrs returns the pools' addresses on a node's tunnels.
func tunnelAddrs(t *testing.T, w *world) string {
	t.Helper()
	var out []string
	for _, dev := range []string{"flannel.1", "flannel-v6.1"} {
		text, _ := nettest.Try(w.node, "ip", "-o", "addr", "show", "dev", dev)
		for _, m := range inet.FindAllStringSubmatch(text, -1) {
			out = append(out, m[1])
		}
	}
	return strings.Join(out, " ")
}

// TestPoolsComeLater: without pools an agent waits, and logs the reason; a pool that an operator creates is used.
func TestPoolsComeLater(t *testing.T) {
	nettest.EndToEnd(t)
	p := newTwo(t, "addresses: pools")
	n1 := p.nodes[0]
	list := n1.list("1.1.0",
		`{"name":"pods","cniVersion":"1.1.0","plugins":[{"type":"calico","ipam":{"type":"calico-ipam"}}]}`)
	p.until("STATUS says what is missing", func() bool {
		err := n1.cni.GetStatusNetworkList(n1.ctx(), list)
		return err != nil && strings.Contains(err.Error(), "there is no pool for the cluster's pods")
	})
	pool := func(name, cidr, namespaces string) {
		t.Helper()
		o, err := store.AddressPoolObject(store.Object{}, model.AddressPool{
			Name: name, AssignmentMode: model.AssignAutomatic,
			Regions:           []model.AddressRegion{{CIDR: netip.MustParsePrefix(cidr), BlockSize: 28}},
			NamespaceSelector: namespaces,
		})
		if err == nil {
			_, err = p.store.Create(t.Context(), o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	pool("gold", "10.78.0.0/24", `tier == "gold"`)
	p.until("a pool for some namespaces makes the node fit", func() bool {
		return n1.cni.GetStatusNetworkList(n1.ctx(), list) == nil
	})
	pool("mine", "10.77.0.0/24", "")
	p.until("the agent knows the other pool", func() bool {
		ns := nettest.NS(t, "try")
		_, err := n1.add(list, "try", ns)
		if err == nil {
			err = n1.del(list, "try", ns)
		}
		return err == nil
	})
	pod1, _ := p.pod(n1, "pod1")
	_, addrs2 := p.pod(p.nodes[1], "pod2")
	p.reaches(pod1, addrs2)
	n1.stop()
	n1.configure("pools: [{cidr: 10.77.0.0/25}]")
	n1.start()
	p.until("a pool in the way is named", func() bool {
		return strings.Contains(n1.log(), "pool pool-10-77-0-0-25 is not created: pool mine overlaps 10.77.0.0/25")
	})
	_, addrs3 := p.pod(n1, "pod3")
	p.reaches(pod1, addrs3)
}

// TestDesignChanges: pods on a bridge stay connected to pods of the routed design, on the same node and on another one,
// and are deleted as before.
func TestDesignChanges(t *testing.T) {
	nettest.EndToEnd(t)
	p := newTwo(t, "design: bridge")
	n1, n2 := p.nodes[0], p.nodes[1]
	old1, oldAddrs1 := p.pod(n1, "old1")
	old2, oldAddrs2 := p.pod(n2, "old2")
	if !strings.Contains(nettest.Run(t, n1.node, "ip", "-o", "link", "show", "type", "veth"), "master weft0") {
		t.Fatal("the pod is on no bridge")
	}
	p.reaches(old1, oldAddrs2)
	bridged, err := n1.own()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range p.nodes {
		w.stop()
		w.configure("design: routed")
		w.start()
		p.until("the other configuration", func() bool {
			b, _ := os.ReadFile(w.path("net.d", "00-weft.conflist"))
			return strings.Contains(string(b), `"calico"`)
		})
	}
	new1, newAddrs1 := p.pod(n1, "new1")
	new2, newAddrs2 := p.pod(n2, "new2")
	for _, a := range newAddrs1 {
		if slices.Contains(oldAddrs1, a) {
			t.Fatalf("%s is given twice", a)
		}
	}
	p.reaches(old2, append(append(slices.Clone(oldAddrs1), newAddrs1...), newAddrs2...))
	p.reaches(new2, append(append(slices.Clone(oldAddrs1), newAddrs1...), oldAddrs2...))
	p.reaches(new1, append(slices.Clone(oldAddrs1), newAddrs2...))
	p.reaches(old1, append(slices.Clone(newAddrs1), newAddrs2...))
	p.reaches(n1.node, append(slices.Clone(oldAddrs1), newAddrs2...))
	if err := n1.del(bridged, "old1", old1); err != nil {
		t.Error(err)
	}
	p.until("the bridged pod's link is gone", func() bool {
		_, err := nettest.Try(old1, "ip", "link", "show", "eth0")
		return err != nil
	})
}
