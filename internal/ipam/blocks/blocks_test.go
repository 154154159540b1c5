// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) {
	if words := os.Getenv(killedAt); words != "" {
		os.Exit(lifeMain(words))
	}
	os.Exit(nettest.Main(leakless{m})) // API servers listen at ports that no other process has
}

// leakless looks for goroutines that tests have left.
type leakless struct{ *testing.M }

func (m leakless) Run() int {
	code := m.M.Run()
	if code != 0 {
		return code
	}
	err := goleak.Find( // connections to an API server that client-go keeps
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"),
		goleak.IgnoreAnyFunction("net/http.(*http2clientConnReadLoop).run"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "goleak:", err)
		return 1
	}
	return 0
}

func TestAllocateInOrderAndOnce(t *testing.T) {
	_, path := cluster(t, nil)
	a, b := join(t, path, "a", nil), join(t, path, "b", nil)
	conf := rangeConf1("10.37.132.0/24", `"range_start":"10.37.132.20","range_end":"10.37.132.50","gateway":"10.37.132.1"`)
	if got := a.mustAdd(conf, "c1"); got != "[10.37.132.20]" {
		t.Errorf("first address %s", got)
	}
	if got := b.mustAdd(conf, "c2"); got != "[10.37.132.21]" {
		t.Errorf("second address %s", got)
	}
	result, err := a.engine.Allocators()[1].Add(context.Background(), a.req(conf, key("c3")))
	if err != nil || result.IPs[0].Address.String() != "10.37.132.22/24" ||
		result.IPs[0].Gateway.String() != "10.37.132.1" {
		t.Errorf("result %v, error %v", result, err)
	}
}

// TestAddIsLocal: once a node has blocks, ADD and DEL send no request.
func TestAddIsLocal(t *testing.T) {
	_, path := cluster(t, nil)
	a := join(t, path, "a", nil)
	conf := rangeConf1("10.0.0.0/16")
	a.mustAdd(conf, "first")
	if err := a.engine.reconciler.reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
	before := a.line.count()
	a.line.set(true, false)
	for i := range 100 {
		a.mustAdd(conf, string(rune('a'+i%26))+strings.Repeat("x", i))
	}
	a.del("first")
	if n := a.line.count() - before; n != 0 {
		t.Errorf("%d requests for 100 ADDs and a DEL", n)
	}
	// After a kill and restart without the datastore it continues, and allocates no address twice.
	a.start()
	seen := map[netip.Addr]bool{}
	for _, addrs := range a.ledger {
		seen[addrs[0]] = true
	}
	addrs, err := a.add(conf, "after")
	if err != nil || seen[addrs[0]] {
		t.Errorf("after a restart: %v, error %v", addrs, err)
	}
	for i := range 40 { // to the end of what it has
		if _, err = a.add(conf, "more"+strings.Repeat("x", i)); err != nil {
			break
		}
	}
	var f *model.Error
	if !errors.As(err, &f) || f.Code != model.CodeTryAgain {
		t.Errorf("used up while the store is away: %v", err)
	}
}

// TestSmallPoolIsUsedUp: what one node does not need, another gets, to the last address.
func TestSmallPoolIsUsedUp(t *testing.T) {
	_, path := cluster(t, nil)
	quick := func(c *Config) { c.Cooldown, c.Idle = 50*time.Millisecond, 300*time.Millisecond }
	a, b := join(t, path, "a", quick), join(t, path, "b", quick)
	conf := rangeConf1("10.0.0.0/25") // 126 addresses in blocks of two
	a.run()
	b.run()
	ids := func(prefix string, n int) (out []string) {
		for i := range n {
			out = append(out, prefix+strings.Repeat("x", i))
		}
		return out
	}
	// as a runtime, which tries again: the datastore of a busy host may not answer in time, or another node not give
	add := func(n *node, id string) {
		t.Helper()
		_, err := n.add(conf, id)
		for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); {
			_, err = n.add(conf, id)
		}
		if err != nil {
			t.Fatalf("node %s, %s: %v", n.name, id, err)
		}
	}
	for _, id := range ids("a", 100) {
		add(a, id)
	}
	for i, id := range ids("a", 100) {
		if i%2 == 0 {
			a.del(id) // half of each block stays in use
		}
	}
	for _, id := range ids("b", 76) {
		add(b, id)
	}
	if _, err := b.add(conf, "one too many"); err == nil ||
		!strings.Contains(err.Error(), "no address is free in 10.0.0.1-10.0.0.126") {
		t.Errorf("one too many: %v", err)
	}
	// And back.
	for _, id := range ids("b", 76) {
		b.del(id)
	}
	for _, id := range ids("again", 70) {
		add(a, id)
	}
	checkOnce(t, a, b)
}

func checkOnce(t interface{ Errorf(string, ...any) }, nodes ...*node) {
	who := map[netip.Addr]string{}
	for _, n := range nodes {
		for k, addrs := range n.ledger {
			for _, a := range addrs {
				if other, twice := who[a]; twice {
					t.Errorf("address %s: container %s on node %s, and %s", a, k.ContainerID, n.name, other)
				}
				who[a] = k.ContainerID + " on node " + n.name
			}
		}
	}
}

// TestEmptyBlocksGoBack: a node that no longer uses a pool keeps only a spare block, and later not even that.
func TestEmptyBlocksGoBack(t *testing.T) {
	s, path := cluster(t, nil)
	now := time.Unix(1000, 0)
	a := join(t, path, "a", func(c *Config) { c.Now = func() time.Time { return now } })
	conf := rangeConf1("10.0.0.0/24")
	for i := range 20 {
		a.mustAdd(conf, strings.Repeat("x", i+1))
	}
	for i := range 20 {
		a.del(strings.Repeat("x", i+1))
	}
	after := func(d time.Duration) int {
		now = now.Add(d)
		for range 2 {
			if err := a.engine.reconciler.reconcile(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		all, err := s.Objects().List(context.Background(), store.AddressBlocks())
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if n := after(0); n < 3 {
		t.Errorf("%d blocks while addresses rest", n)
	}
	after(time.Minute)
	if n := after(time.Minute + time.Second); n != 1 {
		t.Errorf("%d blocks when all are empty, want the spare one", n)
	}
	after(11 * time.Minute)
	if n := after(2 * time.Minute); n != 0 {
		t.Errorf("%d blocks of a pool that nobody uses", n)
	}
}

// TestSpecificAddress: of this node's block, of an unclaimed one, of another node's; allocated, and outside.
func TestSpecificAddress(t *testing.T) {
	_, path := cluster(t, nil)
	quick := func(c *Config) { c.Cooldown, c.WaitLimit = 50*time.Millisecond, 5*time.Second }
	a, b := join(t, path, "a", quick), join(t, path, "b", quick)
	a.run()
	b.run()
	conf := rangeConf1("10.0.0.0/24", `"exclude":["10.0.0.128/25"]`)
	ip := func(s string) [2]string { return [2]string{"IP", s} }
	a.mustAdd(conf, "a1") // 10.0.0.1 of 10.0.0.0/31
	a.mustAdd(conf, "a0") // 10.0.0.2 of 10.0.0.2/31
	a.del("a0")
	for _, c := range []struct {
		n          *node
		id, ip, is string
	}{
		{a, "a2", "10.0.0.3", "[10.0.0.3]"},
		{a, "a3", "10.0.0.3", "ipam: address 10.0.0.3 is taken by interface net1 of container a2 (network net)"},
		{b, "b1", "10.0.0.3", "ipam: address 10.0.0.3 is taken by an attachment on node a"},
		{b, "b2", "10.0.0.2", "[10.0.0.2]"}, // node a lends it
		{a, "a4", "10.0.0.2", "ipam: address 10.0.0.2 is taken by node b"},
		{b, "b3", "10.0.0.77", "[10.0.0.77]"},
		{
			b, "b4", "10.0.0.200",
			"ips: address 10.0.0.200 is not among the allocatable addresses: 10.0.0.1-10.0.0.127 (choose one of these)",
		},
		{b, "b5", "10.9.0.1", "ips: address 10.9.0.1 is in no range that is left for this attachment: 10.0.0.0/24"},
	} {
		addrs, err := c.n.add(conf, c.id, ip(c.ip))
		text := ""
		if err != nil {
			text = err.Error()
		} else {
			text = "[" + addrs[0].String() + "]"
		}
		if !strings.HasPrefix(text, c.is) {
			t.Errorf("%s asks for %s: %s, want %s", c.n.name, c.ip, text, c.is)
		}
	}
	b.del("b2")
	eventually(t, "the ceded address is node a's again", func() bool {
		_, err := a.add(conf, "a5", ip("10.0.0.2"))
		return err == nil
	})
	checkOnce(t, a, b)
}

// TestAnswerWithoutEvent: a request for a specific address is answered even if no watch reports the answer. The refusal
// of node a puts the block back as it was, so a watch that reports only the last state has nothing to report; here node
// b hears nothing at all.
func TestAnswerWithoutEvent(t *testing.T) {
	_, path := cluster(t, nil)
	patient := func(c *Config) { c.WaitLimit = time.Minute }
	a, b := join(t, path, "a", patient), join(t, path, "b", patient)
	a.run()
	conf := rangeConf1("10.0.0.0/24")
	a.mustAdd(conf, "a1") // 10.0.0.1
	_, err := b.add(conf, "b1", [2]string{"IP", "10.0.0.1"})
	if err == nil || !strings.HasPrefix(err.Error(), "ipam: address 10.0.0.1 is taken by an attachment on node a") {
		t.Errorf("%v", err)
	}
}

// TestExpected: a range with room for all nodes has a block here before the first pod asks, and one without has not.
func TestExpected(t *testing.T) {
	s, path := cluster(t, nil)
	a := join(t, path, "a", nil)
	large, small := rangeConf1("10.0.0.0/16"), rangeConf1("10.1.0.0/25")
	a.engine.Expect([]json.RawMessage{
		json.RawMessage(large), json.RawMessage(small), json.RawMessage(`{"type":"macvlan"}`),
	}, 20)
	if err := a.engine.reconciler.reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
	before := a.line.count()
	if got := a.mustAdd(large, "c"); got != "[10.0.0.1]" || a.line.count() != before {
		t.Errorf("%s, %d requests", got, a.line.count()-before)
	}
	all, err := s.Objects().List(context.Background(), store.AddressBlocks())
	if err != nil || len(all) != 1 {
		t.Errorf("blocks %v, error %v", all, err)
	}
}
