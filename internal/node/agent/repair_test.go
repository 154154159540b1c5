// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// whole waits until CHECK of an attachment succeeds.
func (w *world) whole(what string, check func() error) {
	w.t.Helper()
	for limit := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			w.t.Fatalf("%s: not repaired: %v\n%s", what, err, w.log())
		}
	}
}

// countedRepairs returns the agent's count of repairs of a kind.
func (w *world) countedRepairs(kind string) (n int) {
	w.t.Helper()
	text := w.web("GET /metrics HTTP/1.0")
	if _, rest, found := strings.Cut(text, fmt.Sprintf("weft_repairs_total{kind=%q} ", kind)); found {
		_, _ = fmt.Sscan(rest, &n)
	}
	return n
}

// TestKilledWhileRepairing: an agent that is killed at each failpoint of a repair leaves nothing that its next start
// does not repair, and nothing of the pod that a DEL does not remove.
func TestKilledWhileRepairing(t *testing.T) {
	nettest.EndToEnd(t)
	all := []string{"before repair", "after repair of node", "after repair"}
	for _, c := range []struct {
		network, what string
		steps         []string
	}{
		{"bridge", "ends and addresses", all},
		{"routed", "ends and addresses", all},
		{"bridge", "the pair", []string{"before repair", "after repair"}},
		{"routed", "the pair", []string{"before repair", "after repair"}},
		{"bridge", "rules", all},
		{"routed", "rules", all},
		{"bridge", "a guest's join", all},
	} {
		t.Run(c.network+", "+c.what, func(t *testing.T) {
			killedWhileRepairing(t, c.network, c.what, c.steps)
		})
	}
}

// takeAway removes an object of a pod's network.
func (c *crasher) takeAway(what, host string, ns *netns.NS) {
	c.t.Helper()
	switch what {
	case "the pair":
		nettest.Run(c.t, c.node, "ip", "link", "del", host)
	case "rules":
		nettest.Run(c.t, c.node, "nft", "flush", "ruleset")
	case "a guest's join":
		nettest.Run(c.t, ns, "tc", "qdisc", "del", "dev", "tap0", "ingress")
	default:
		nettest.Run(c.t, c.node, "ip", "link", "set", host, "down")
		_, _ = nettest.Try(c.node, "ip", "route", "flush", "proto", "119")
		nettest.Run(c.t, ns, "ip", "addr", "flush", "dev", "eth0")
	}
}

func killedWhileRepairing(t *testing.T, network, what string, steps []string) {
	c := newCrasher(t, network)
	ns := nettest.NS(t, "pod")
	r, err := c.add(c.list, "c1", ns)
	if err != nil {
		t.Fatal(err)
	}
	host := r.Interfaces[0].Name
	if network == "bridge" {
		host = r.Interfaces[1].Name
	}
	check := func() error { return c.check(c.list, "c1", ns) }
	detach := func() error { return c.del(c.list, "c1", ns) }
	if what == "a guest's join" {
		nettest.Need(t, "tap")
		direct := c.world.list("1.1.0", `{"type":"weft-direct","join":"mirred"}`)
		second := &libcni.RuntimeConf{ContainerID: "c1", NetNS: ns.Path(), IfName: "net1"}
		if _, err := c.cni.AddNetworkList(c.ctx(), direct, second); err != nil {
			t.Fatal(err)
		}
		first := detach
		check = func() error { return c.cni.CheckNetworkList(c.ctx(), direct, second) }
		detach = func() error { return errors.Join(c.cni.DelNetworkList(c.ctx(), direct, second), first()) }
	}
	for k := range steps {
		c.stop() // what the next one hears is the first loss: a second one in the pod would be its will
		c.start()
		c.whole("before", check)
		c.arm(k)()
		c.takeAway(what, host, ns)
		select {
		case <-c.done:
			c.agent = nil
		case <-time.After(30 * time.Second):
			t.Fatalf("the agent was not killed at step %d of a repair: %s", k, c.log())
		}
		c.start()
		c.whole(fmt.Sprint("killed at step ", k), check)
	}
	log, err := os.ReadFile(c.path("agent.log"))
	if err != nil {
		t.Fatal(err)
	}
	var at []string
	for _, m := range regexp.MustCompile(`killed at failpoint: (.*)`).FindAllStringSubmatch(string(log), -1) {
		at = append(at, m[1])
	}
	if !slices.Equal(at, steps) {
		t.Errorf("killed at %q, want %q", at, steps)
	}
	if err := detach(); err != nil {
		t.Error(err)
	}
	if diff := c.settled(c.before); diff != "" {
		t.Errorf("left behind: %s", diff)
	}
	c.stop()
}

// TestRepairAtStart: what is removed while no agent runs is repaired by the next one, on the node and in the pod,
// counted, and logged once with the object and the attachment's age.
func TestRepairAtStart(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	if err := os.WriteFile(w.path("weft.yaml"), []byte("metrics: {address: '127.0.0.1:9119'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.args = []string{"--config", w.path("weft.yaml"), "--log-level", "info"}
	w.start()
	list, ns := w.list("1.0.0", w.routedOr("routed")), nettest.NS(t, "pod")
	r, err := w.add(list, "c1", ns)
	if err != nil {
		t.Fatal(err)
	}
	w.kill()
	addr := r.IPs[0].Address
	nettest.Run(t, w.node, "ip", "route", "del", addr.String())
	nettest.Run(t, w.node, "sysctl", "-qw", "net/ipv4/conf/"+r.Interfaces[0].Name+"/route_localnet=0")
	nettest.Run(t, w.node, "tc", "qdisc", "del", "dev", r.Interfaces[0].Name, "root")
	nettest.Run(t, ns, "ip", "addr", "del", addr.String(), "dev", "eth0")
	w.start()
	w.whole("at the start", func() error { return w.check(list, "c1", ns) })
	// Counts and log lines follow the repair.
	for _, kind := range []string{"route", "sysctl", "qdisc", "addr"} {
		w.whole("the count of "+kind, func() error {
			if w.countedRepairs(kind) == 0 {
				return fmt.Errorf("weft_repairs_total counts no %s", kind)
			}
			return nil
		})
	}
	whole := func() string {
		b, err := os.ReadFile(w.path("agent.log"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	logged := func(object string) int {
		return len(regexp.MustCompile(`msg="drift of an attachment was repaired".* object="`+object+`[^\n]* age=`).
			FindAllString(whole(), -1))
	}
	for _, object := range []string{"route " + addr.String(), "qdisc ", "addr " + addr.String()} {
		w.whole("the log of "+object, func() error {
			if logged(object) == 0 {
				return errors.New("it is not logged with its age")
			}
			return nil
		})
		if n := logged(object); n != 1 {
			t.Errorf("%s is logged %d times with its age, want once:\n%s", object, n, whole())
		}
	}
	w.stop()
}

// TestRepairOnFullDisk: a repair writes nothing to the agent's disk, and works if that is full or read-only.
func TestRepairOnFullDisk(t *testing.T) {
	nettest.EndToEnd(t)
	t.Run("full", func(t *testing.T) {
		repairOnDisk(t, func(dir string) (spoil func()) {
			nettest.Run(t, nil, "mount", "-t", "tmpfs", "-o", "size=1m", "weft-small", dir)
			t.Cleanup(func() { nettest.Run(t, nil, "umount", dir) })
			return func() {
				if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 2<<20), 0o600); err == nil {
					t.Fatal("the disk is not full")
				}
			}
		})
	})
	t.Run("read-only", func(t *testing.T) {
		repairOnDisk(t, func(dir string) (spoil func()) {
			spoil, _ = nettest.FragileDir(t, dir)
			return spoil
		})
	})
}

func repairOnDisk(t *testing.T, mount func(dir string) (spoil func())) {
	t.Helper()
	w := newWorld(t)
	if err := os.MkdirAll(w.path("state"), 0o700); err != nil {
		t.Fatal(err)
	}
	spoil := mount(w.path("state"))
	t.Cleanup(w.kill)
	w.start()
	list, ns := w.list("1.0.0", w.routedOr("routed")), nettest.NS(t, "pod")
	r, err := w.add(list, "c1", ns)
	if err != nil {
		t.Fatal(err)
	}
	spoil()
	nettest.Run(t, w.node, "ip", "link", "set", r.Interfaces[0].Name, "down")
	nettest.Run(t, ns, "ip", "addr", "flush", "dev", "eth0")
	w.whole("on such a disk", func() error { return w.check(list, "c1", ns) })
}

// TestRepairJoins: the join of a guest's tap with its pod's link is restored, whatever its kind, as often as another
// program removes it, and counted as a repair of the attachment.
func TestRepairJoins(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "tap")
	for _, how := range []string{"redirect-peer", "redirect", "mirred"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t)
			if err := os.WriteFile(w.path("weft.yaml"), []byte("metrics: {address: '127.0.0.1:9119'}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			w.args = []string{"--config", w.path("weft.yaml")}
			w.start()
			pods, ns := w.attached("bridge")
			direct := w.list("1.1.0", fmt.Sprintf(`{"type":"weft-direct","join":%q}`, how))
			second := &libcni.RuntimeConf{ContainerID: "c1", NetNS: ns.Path(), IfName: "net1"}
			if _, err := w.cni.AddNetworkList(w.ctx(), direct, second); err != nil {
				nettest.SkipMissing(t, "no join by "+how+": "+err.Error())
			}
			check := func() error { return w.cni.CheckNetworkList(w.ctx(), direct, second) }
			for range 3 { // each time: a guest that is cut off cannot help itself
				before := w.countedRepairs("join")
				nettest.Run(t, ns, "tc", "qdisc", "del", "dev", "tap0", "ingress")
				w.whole(how, check)
				w.whole(how+", the pod's network", func() error { return w.check(pods, "c1", ns) })
				w.whole(how+", the count of joins", func() error { // it follows the repair
					if n := w.countedRepairs("join"); n <= before {
						return fmt.Errorf("%d joins are counted, %d before", n, before)
					}
					return nil
				})
			}
			if err := w.cni.DelNetworkList(w.ctx(), direct, second); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDriftEvent: an object that a pod removes twice within ten minutes causes one event on the pod, with the object
// and the place; the first removal causes none.
func TestDriftEvent(t *testing.T) {
	nettest.EndToEnd(t)
	k := newKubeWorld(t, 1)
	w := k.nodes[0]
	w.start()
	p := k.sandbox("p", k.pod("p", 1), 1)
	k.known(1, "p")
	if err := p.add(); err != nil {
		t.Fatalf("%v\n%s", err, w.log())
	}
	events := func() (out []string) {
		var all struct {
			Items []struct{ Reason, Type, Message string }
		}
		if err := json.Unmarshal(k.Do("GET", "/api/v1/namespaces/default/events", nil), &all); err != nil {
			t.Fatal(err)
		}
		for _, e := range all.Items {
			if e.Reason == "NetworkDrift" {
				out = append(out, e.Type+": "+e.Message)
			}
		}
		return out
	}
	nettest.Run(t, p.ns, "ip", "addr", "del", "10.100.1.2/24", "dev", "eth0")
	w.whole("the first time", p.check)
	if got := events(); len(got) > 0 {
		t.Errorf("events about the first time: %q", got)
	}
	nettest.Run(t, p.ns, "ip", "addr", "del", "10.100.1.2/24", "dev", "eth0")
	const about = "Warning: network net, interface eth0, in the pod: "
	k.until("an event about the address", func() bool {
		return slices.ContainsFunc(events(), func(e string) bool { return strings.HasPrefix(e, about+"addr 10.100.1.2/24 ") })
	})
	// The kernel takes the routes by way of the address along, each of which is a thing of its own.
	all := events()
	slices.Sort(all)
	for _, e := range all {
		if !strings.HasPrefix(e, about) ||
			!strings.HasSuffix(e, " was removed or changed twice within ten minutes; it is not repaired") {
			t.Errorf("event: %q", e)
		}
	}
	if len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("one thing twice: %q", all)
	}
	if err := p.check(); code(err) != 102 {
		t.Errorf("the address is put back a second time: %v", err)
	}
}

// TestRepairGuests: what joins a guest with its pod's network, and what guards it there, is restored by the kernel's
// event, as often as another program removes it, and counted as a repair of the attachment.
func TestRepairGuests(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "tap")
	const guard = "bridge weft_guard_tap0"
	for binding, drifts := range map[model.VMBinding][]struct{ kind, command string }{
		model.VMBridge: {
			{"link", "ip link set tap0 nomaster"},
			{"link", "ip link set eth0-nic nomaster"},
			{"nft", "nft delete table " + guard},
			{"nft", "nft flush chain " + guard + " prerouting"},
			{"nft", "nft insert rule " + guard + " prerouting accept"},
			{"nft", "nft add element " + guard + " own4 { 10.9.0.77 }"},
		},
		model.VMManagedTap: {{"link", "ip link set tap0 nomaster"}, {"nft", "nft delete table " + guard}},
		model.VMMasquerade: {
			{"link", "ip link set tap0 nomaster"},
			{"nft", "nft delete table " + guard},
			{"nft", "nft delete table ip weft_vm"},
			{"nft", "nft flush chain ip weft_vm postrouting"},
		},
	} {
		t.Run(string(binding), func(t *testing.T) {
			w := newWorld(t)
			if err := os.WriteFile(w.path("weft.yaml"), []byte("metrics: {address: '127.0.0.1:9119'}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			w.args = []string{"--config", w.path("weft.yaml")}
			w.start()
			list, ns := w.attached("bridge")
			w.startVM(ns, vmInput(binding))
			check := func() error { return w.check(list, "c1", ns) }
			w.whole("at first", check)
			ports := func() string { return nettest.Run(t, ns, "bridge", "-d", "link") }
			before := ports()
			for _, d := range drifts {
				for range 2 { // each time: a guest cannot help itself
					counted := w.countedRepairs(d.kind)
					nettest.Run(t, ns, strings.Fields(d.command)...)
					w.whole(d.command, func() error {
						if w.countedRepairs(d.kind) == counted {
							return errors.New("no repair is counted")
						}
						return check()
					})
				}
			}
			if after := ports(); after != before {
				t.Errorf("ports before:\n%s\nafter:\n%s", before, after)
			}
			w.stopVM(ns)
			if err := check(); err != nil {
				t.Errorf("when the machine has left: %v", err)
			}
		})
	}
}
