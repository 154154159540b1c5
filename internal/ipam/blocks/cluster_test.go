// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// poolYAML is a pool of the cluster's network.
func poolYAML(name, cidr string, size int, more ...string) string {
	return fmt.Sprintf(
		"apiVersion: weft.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: %s}\nspec:\n  assignmentMode: %s\n  regions: [{cidr: %q, blockSize: %d}]\n%s",
		name, mode(&more), cidr, size, strings.Join(more, ""))
}

func mode(more *[]string) string {
	if len(*more) > 0 && (*more)[0] == "Manual" {
		*more = (*more)[1:]
		return "Manual"
	}
	return "Automatic"
}

func calicoConf(more ...string) string {
	return `{"cniVersion":"1.0.0","name":"net","type":"calico","ipam":{` +
		strings.Join(append([]string{`"type":"calico-ipam"`}, more...), ",") + `}}`
}

// addCluster is an ADD of the cluster's network with its record.
func (n *node) addCluster(conf, id string, podRequest model.AddressRequest) (string, error) {
	req := n.req(conf, key(id))
	req.PodRequest = podRequest
	result, err := n.engine.Allocators()[2].Add(context.Background(), req)
	if err != nil {
		return "", err
	}
	var words []string
	var addrs []netip.Addr
	for _, ip := range result.IPs {
		words = append(words, ip.Address.String())
		addrs = append(addrs, ip.Address.Addr())
	}
	n.ledger[key(id)], n.confs[key(id)] = addrs, conf
	return strings.Join(words, " "), nil
}

func labels(l map[string]string) func(*Config) {
	return func(c *Config) { c.Labels = func() (map[string]string, bool) { return l, l != nil } }
}

// in returns which pools the addresses of an answer are of, by their first two parts.
func in(answer string) string {
	var out []string
	for word := range strings.FieldsSeq(answer) {
		a := netip.MustParsePrefix(word)
		if a.Addr().Is6() {
			out = append(out, a.Addr().StringExpanded()[:9])
			continue
		}
		parts := strings.Split(word, ".")
		out = append(out, parts[0]+"."+parts[1])
	}
	return strings.Join(out, " ")
}

func TestClusterPools(t *testing.T) {
	_, path := cluster(t, map[string]string{
		"a.yaml": poolYAML("a-rack1", "10.1.0.0/16", 26, "  nodeSelector: rack == '1'\n"),
		"b.yaml": poolYAML("b-shop", "10.2.0.0/16", 26, "  namespaceSelector: team == 'shop'\n  nodeSelector: rack == '2'\n"),
		"c.yaml": poolYAML("c-all", "10.3.0.0/16", 26, "  nodeSelector: rack in {'2','3'}\n"),
		"d.yaml": poolYAML("d-manual", "10.4.0.0/16", 28, "Manual"),
		"e.yaml": poolYAML("e-off", "10.5.0.0/16", 26, "  disabled: true\n"),
		"f.yaml": poolYAML("f-tunnel", "10.6.0.0/16", 26, "  allowedUses: [Tunnel]\n"),
		"g.yaml": poolYAML("g-six", "fd00:6::/64", 122),
		"h.yaml": poolYAML("h-late", "10.3.128.0/17", 26), // overlaps with c-all, whose name is the first of the two
		"i.yaml": "apiVersion: weft.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: lan}\nspec:\n  regions: [{cidr: 10.9.0.0/16, blockSize: 26}]\n",
	})
	nodes := map[string]*node{}
	for rack, name := range map[string]string{"1": "n1", "2": "n2", "4": "n4"} {
		nodes[name] = join(t, path, name, labels(map[string]string{"rack": rack}))
	}
	nodes["blind"] = join(t, path, "blind", labels(nil))
	four, both := calicoConf(), calicoConf(`"assign_ipv6":"true"`)
	shop := map[string]string{"team": "shop"}
	for i, c := range []struct {
		node, conf string
		podRequest model.AddressRequest
		want       string
	}{
		{"n1", four, model.AddressRequest{}, "10.1"},
		{"n1", both, model.AddressRequest{}, "10.1 fd00:0006"},
		{"n1", calicoConf(`"assign_ipv4":"false"`, `"assign_ipv6":true`), model.AddressRequest{}, "fd00:0006"},
		{"n1", four, model.AddressRequest{Families: []model.IPFamily{model.IPv6, model.IPv4}}, "fd00:0006 10.1"},
		{"n2", four, model.AddressRequest{NamespaceLabels: shop}, "10.2"},
		{"n2", four, model.AddressRequest{NamespaceLabels: map[string]string{"team": "x"}}, "10.3"},
		{"n2", four, model.AddressRequest{}, "10.3"},
		{"n2", four, model.AddressRequest{Use: model.UseTunnel}, "10.2"},
		{"n4", four, model.AddressRequest{Use: model.UseTunnel}, "10.6"},
		{"n4", four, model.AddressRequest{Pools4: []string{"d-manual"}}, "10.4"},
		{"n4", four, model.AddressRequest{Pools4: []string{"10.1.0.0/16"}}, "10.1"}, // selectors do not matter to this request
		{"n4", four, model.AddressRequest{Pools4: []string{"e-off", "d-manual"}}, "10.4"},
		{"n4", calicoConf(`"ipv4_pools":["c-all"]`), model.AddressRequest{}, "10.3"},
		{"n4", calicoConf(`"ipv4_pools":["c-all"]`), model.AddressRequest{Pools4: []string{"d-manual"}}, "10.4"},
		{"blind", calicoConf(`"assign_ipv4":"false"`, `"assign_ipv6":"true"`), model.AddressRequest{}, "fd00:0006"},
		{"n4", four, model.AddressRequest{Addrs: addrs("10.4.0.77")}, "10.4"},
		{"n4", four, model.AddressRequest{Addrs: addrs("10.1.7.7 fd00:6::77")}, "10.1 fd00:0006"},
		{"n4", both, model.AddressRequest{Addrs: addrs("10.4.0.80")}, "10.4"},
		{
			"n4", four,
			model.AddressRequest{Addrs: addrs("10.4.0.81"), Families: []model.IPFamily{model.IPv4, model.IPv6}}, "10.4 fd00:0006",
		},

		{
			"n4", four,
			model.AddressRequest{},
			`11 IPv4 address: no pool is for this pod: pool "a-rack1": its nodeSelector rack == '1' does not select this node; pool "b-shop": its nodeSelector rack == '2' does not select this node; pool "c-all": its nodeSelector rack in {'2','3'} does not select this node; pool "d-manual": it serves only pods that request it (assignmentMode Manual); pool "f-tunnel": it is not for the use Workload (allowedUses Tunnel); and 2 more (change a pool, or name one in the pod's annotation)`,
		},
		{
			"n4", four,
			model.AddressRequest{Pools4: []string{"nope"}},
			`11 annotation ipv4pools: there is no pool "nope" in the cluster's network (create an AddressPool with an assignmentMode, or name another one)`,
		},
		{
			"n4", four,
			model.AddressRequest{Pools4: []string{"lan"}},
			`11 annotation ipv4pools: there is no pool "lan" in the cluster's network (create an AddressPool with an assignmentMode, or name another one)`,
		},
		{
			"n4", calicoConf(`"ipv4_pools":["g-six"]`),
			model.AddressRequest{},
			`7 ipam.ipv4_pools: pool "g-six" has no IPv4 addresses (name a pool that has)`,
		},
		{
			"n4", four,
			model.AddressRequest{Pools4: []string{"e-off", "f-tunnel", "h-late"}},
			`11 annotation ipv4pools: pool "e-off" is not allocatable: the pool is disabled; pool "f-tunnel" is not for the use Workload (allowedUses Tunnel); pool "h-late" is not allocatable: region 10.3.128.0/17 overlaps with region 10.3.0.0/16 of pool c-all, which is older (name another pool)`,
		},
		{
			"n4", four,
			model.AddressRequest{Addrs: addrs("10.4.0.77")},
			`101 ipAddrs: address 10.4.0.77 is taken by interface net1 of container c15 (network net) (ask for another address, or release that one first)`,
		},
		{
			"n1", four,
			model.AddressRequest{Addrs: addrs("10.4.0.78 10.4.0.79")},
			`7 ipAddrs: 10.4.0.78 and 10.4.0.79 are of one family (ask for one IPv4 and one IPv6 address at most)`,
		},
		{
			"n1", four,
			model.AddressRequest{Addrs: addrs("10.9.0.1")},
			`7 ipAddrs: address 10.9.0.1 is in no pool of the cluster's network (choose an address of a pool, or create a pool that has it)`,
		},
		{
			"n1", four,
			model.AddressRequest{Addrs: addrs("10.5.0.1")},
			`11 ipAddrs: address 10.5.0.1 is in pool "e-off", which is not allocatable: the pool is disabled (choose an address of another pool)`,
		},
		{
			"n1", four,
			model.AddressRequest{Families: []model.IPFamily{"IPX"}},
			`7 annotation ipFamilies: "IPX" is no family ("IPv4" or "IPv6")`,
		},
	} {
		got, err := nodes[c.node].addCluster(c.conf, fmt.Sprint("c", i), c.podRequest)
		got = in(got)
		var f *model.Error
		if errors.As(err, &f) {
			got = fmt.Sprint(uint(f.Code), " ", err)
		} else if err != nil {
			t.Fatal(err)
		}
		if got != c.want {
			t.Errorf("case %d:\n got %s\nwant %s", i, got, c.want)
		}
	}
	checkOnce(t, nodes["n1"], nodes["n2"], nodes["n4"], nodes["blind"])
}

func addrs(text string) (out []netip.Addr) {
	for word := range strings.FieldsSeq(text) {
		out = append(out, netip.MustParseAddr(word))
	}
	return out
}

func TestClusterBadConf(t *testing.T) {
	for conf, want := range map[string]string{
		calicoConf(
			`"assign_ipv4":"perhaps"`,
		): `ipam.assign_ipv4 "perhaps" is neither true nor false (write "true" or "false")`,
		calicoConf(
			`"assign_ipv4":"false"`,
		): `ipam.assign_ipv4 and ipam.assign_ipv6 are both false: there is nothing to allocate (set one of them to true)`,
		calicoConf(`"ipv4_pools":"a"`):      `configuration: ipam.ipv4_pools is string, want list`,
		calicoConf(`"ipv6_pools":["a",""]`): `ipam.ipv6_pools[1] is empty (a pool's name or its CIDR)`,
	} {
		if err := Readers(nil)[2].Validate(json.RawMessage(conf)); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", conf, err, want)
		}
	}
}

// TestClusterHalfIsReleased: when there is no address of the second family, that of the first is free at once.
func TestClusterHalfIsReleased(t *testing.T) {
	_, path := cluster(t, map[string]string{
		"a.yaml": poolYAML("four", "10.1.0.0/30", 30), "b.yaml": poolYAML("six", "fd00::/126", 126),
	})
	a := join(t, path, "a", func(c *Config) { c.WaitLimit = 50 * time.Millisecond })
	conf := calicoConf(`"assign_ipv6":"true"`)
	for i := range 3 {
		if _, err := a.addCluster(conf, fmt.Sprint("c", i), model.AddressRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.addCluster(calicoConf(`"assign_ipv4":"false"`, `"assign_ipv6":"true"`), "six",
		model.AddressRequest{}); err != nil {
		t.Fatal(err)
	}
	_, err := a.addCluster(conf, "half", model.AddressRequest{})
	if err == nil ||
		!strings.HasPrefix(err.Error(),
			`IPv6 address: no address is free in fd00::-fd00::3 of pool "six": 4 of 4 are held on this node`) {
		t.Errorf("no IPv6 address: %v", err)
	}
	if got, err := a.addCluster(calicoConf(), "four", model.AddressRequest{}); err != nil || got != "10.1.0.3/32" {
		t.Errorf("the IPv4 address of the half: %q, %v", got, err)
	}
}

// TestClusterManyPools: when one is used up, the next one is used; when all are, the message names them.
func TestClusterManyPools(t *testing.T) {
	_, path := cluster(t, map[string]string{
		"a.yaml": poolYAML("a", "10.1.0.0/31", 32), "b.yaml": poolYAML("b", "10.2.0.0/31", 31),
	})
	a := join(t, path, "a", func(c *Config) { c.WaitLimit = 100 * time.Millisecond })
	var got []string
	for i := range 4 {
		one, err := a.addCluster(calicoConf(), fmt.Sprint("c", i), model.AddressRequest{})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, one)
	}
	slices.Sort(got)
	if want := []string{"10.1.0.0/32", "10.1.0.1/32", "10.2.0.0/32", "10.2.0.1/32"}; !slices.Equal(got, want) {
		t.Errorf("addresses %v", got)
	}
	_, err := a.addCluster(calicoConf(), "more", model.AddressRequest{})
	var f *model.Error
	if !errors.As(err, &f) || f.Code != model.CodeExhausted || !strings.Contains(err.Error(), `of pool "a"`) ||
		!strings.Contains(err.Error(), `of pool "b"`) {
		t.Errorf("one too many: %v", err)
	}
}

// TestClusterWithoutStore: what was known of pools is known after a restart, so that an agent continues while the
// datastore is away, and nothing that is reserved or excluded is allocated.
func TestClusterWithoutStore(t *testing.T) {
	_, path := cluster(t, map[string]string{
		"a.yaml": poolYAML("a", "10.1.0.0/29", 29, "  reserved: [{address: 10.1.0.2, for: a printer}]\n"),
		"b.yaml": poolYAML("b", "10.2.0.0/24", 26, "  namespaceSelector: has(x)\n"),
	})
	a := join(t, path, "a", nil)
	if _, err := a.addCluster(calicoConf(), "c1", model.AddressRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := a.engine.reconciler.reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
	a.line.set(true, false)
	a.start()
	var got []string
	for i := range 20 {
		one, err := a.addCluster(calicoConf(), fmt.Sprint("d", i), model.AddressRequest{})
		if err != nil {
			break
		}
		got = append(got, one)
	}
	want := []string{"10.1.0.1/32", "10.1.0.3/32", "10.1.0.4/32", "10.1.0.5/32", "10.1.0.6/32", "10.1.0.7/32"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	_, err := a.addCluster(calicoConf(), "more", model.AddressRequest{})
	var f *model.Error
	if !errors.As(err, &f) || f.Code != model.CodeTryAgain {
		t.Errorf("used up while the store is away: %v", err)
	}
}

// TestClusterSpare: the first block is claimed before the first pod, by what the pools say of this node, and there is
// always a block more than is needed; with a bound there is not.
func TestClusterSpare(t *testing.T) {
	s, path := cluster(t, map[string]string{
		"a.yaml": poolYAML("a", "10.1.0.0/16", 28, "  nodeSelector: rack == '1'\n"),
		"b.yaml": poolYAML("b", "10.2.0.0/16", 28, "  maxBlocksPerNode: 2\n"),
	})
	count := func(pool string) (n int) {
		all, err := s.Objects().List(context.Background(), store.AddressBlocks())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			if b, err := o.AddressBlock(); err == nil && b.Pool == pool {
				n++
			}
		}
		return n
	}
	a := join(t, path, "a", labels(map[string]string{"rack": "2"}))
	a.engine.Expect([]json.RawMessage{json.RawMessage(calicoConf())}, 3)
	a.run()
	// The node owns it when it has read the store's answer: in the store it is before that.
	eventually(t, "a block of pool b", func() bool { return count("b") == 1 && len(a.engine.Allocations().Blocks) == 1 })
	before := a.line.count()
	a.line.set(true, false)
	for i := range 16 {
		if _, err := a.addCluster(calicoConf(), fmt.Sprint("c", i), model.AddressRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a pass while the datastore does not answer", func() bool { return a.line.count() > before })
	a.line.set(false, false)
	eventually(t, "a spare block", func() bool { return count("b") == 2 && len(a.engine.Allocations().Blocks) == 2 })
	for i := range 16 {
		if _, err := a.addCluster(calicoConf(), fmt.Sprint("d", i), model.AddressRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.addCluster(calicoConf(), "more", model.AddressRequest{}); err == nil ||
		!strings.Contains(err.Error(), "maxBlocksPerNode 2") {
		t.Errorf("a third block: %v", err)
	}
	if count("a") != 0 || count("b") != 2 {
		t.Errorf("%d blocks of pool a, %d of pool b", count("a"), count("b"))
	}
}

// TestClusterHold: a choice that is dropped leaves the address free, one that is kept does not.
func TestClusterHold(t *testing.T) {
	_, path := cluster(t, map[string]string{"a.yaml": poolYAML("a", "10.1.0.0/24", 28)})
	a := join(t, path, "a", nil)
	holder := a.engine.Allocators()[2].(ipam.Reserver)
	get := func(id string) (ipam.Reservation, string) {
		h, err := holder.Reserve(context.Background(), a.req(calicoConf(), key(id)))
		if err != nil {
			t.Fatal(err)
		}
		return h, h.Result().IPs[0].Address.String()
	}
	h, first := get("c1")
	h.Cancel()
	h, second := get("c2")
	if second != first {
		t.Errorf("%s was dropped, and %s comes", first, second)
	}
	if err := h.Commit(); err != nil {
		t.Fatal(err)
	}
	h.Cancel()
	if _, third := get("c3"); third == second {
		t.Errorf("%s was kept, and comes again", second)
	}
}

// TestClusterImported: what another program has allocated to a pod is reserved until the pod's DEL.
func TestClusterImported(t *testing.T) {
	now := time.Unix(1e9, 0)
	_, path := cluster(t, nil)
	h := newHeap(
		t,
		poolYAML("p", "10.1.0.0/30", 30,
			"  reserved: [{address: 10.1.0.0, for: shop/web, containerID: old, ifName: net1, by: host-local}]\n"),
	)
	a := join(t, path, "a", still(h, &now))
	for i := range 3 {
		if _, err := a.addCluster(calicoConf(), fmt.Sprint("c", i), model.AddressRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := a.addCluster(calicoConf(), "early", model.AddressRequest{}); err == nil {
		t.Errorf("%s is given, and is the old pod's", got)
	}
	if err := a.engine.Allocators()[2].Del(t.Context(), a.req(calicoConf(), key("old"))); err != nil {
		t.Fatal(err)
	}
	if err := a.engine.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := a.addCluster(calicoConf(), "late", model.AddressRequest{}); err != nil || got != "10.1.0.0/32" {
		t.Errorf("after the old pod's DEL: %s, %v", got, err)
	}
}
