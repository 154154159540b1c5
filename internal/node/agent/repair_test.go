// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/weft-net/weft/internal/nettest"
)

// whole waits until CHECK finds an attachment as it was made.
func (w *world) whole(what string, check func() error) {
	w.t.Helper()
	for limit := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			w.t.Fatalf("%s: not repaired: %v\n%s", what, err, w.log())
		}
	}
}

// countedRepairs is the number of things of a kind that the agent says it has put back.
func (w *world) countedRepairs(kind string) (n int) {
	w.t.Helper()
	text := w.web("GET /metrics HTTP/1.0")
	if _, rest, found := strings.Cut(text, fmt.Sprintf("weft_repairs_total{kind=%q} ", kind)); found {
		_, _ = fmt.Sscan(rest, &n)
	}
	return n
}

// TestKilledWhileRepairing: an agent that is killed at each step of a repair leaves nothing that its next start does
// not repair, and nothing of the pod that a DEL does not find.
func TestKilledWhileRepairing(t *testing.T) {
	nettest.Whole(t)
	for _, c := range []struct {
		network string
		gone    bool // the pair, with both of its ends
		steps   []string
	}{
		{"bridge", false, []string{"before repair", "after repair of node", "after repair"}},
		{"routed", false, []string{"before repair", "after repair of node", "after repair"}},
		{"bridge", true, []string{"before repair", "after repair"}},
		{"routed", true, []string{"before repair", "after repair"}},
	} {
		t.Run(fmt.Sprint(c.network, ", pair gone ", c.gone), func(t *testing.T) {
			killedWhileRepairing(t, c.network, c.gone, c.steps)
		})
	}
}

func killedWhileRepairing(t *testing.T, network string, gone bool, steps []string) {
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
	for k := range steps {
		c.stop() // what the next one hears is the first loss: a second one in the pod would be its will
		c.start()
		c.whole("before", check)
		c.arm(k)()
		if gone {
			nettest.Run(t, c.node, "ip", "link", "del", host)
		} else {
			nettest.Run(t, c.node, "ip", "link", "set", host, "down")
			_, _ = nettest.Try(c.node, "ip", "route", "flush", "proto", "119")
			nettest.Run(t, ns, "ip", "addr", "flush", "dev", "eth0")
		}
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
	for _, m := range regexp.MustCompile(`killed at step: (.*)`).FindAllStringSubmatch(string(log), -1) {
		at = append(at, m[1])
	}
	if !slices.Equal(at, steps) {
		t.Errorf("killed at %q, want %q", at, steps)
	}
	if err := c.del(c.list, "c1", ns); err != nil {
		t.Error(err)
	}
	if diff := c.settled(c.before); diff != "" {
		t.Errorf("left behind: %s", diff)
	}
	c.stop()
}

// TestRepairAtStart: what goes while there is no agent is put back by the next one, on the node and in the pod,
// counted, and logged once with the object and the attachment's age.
func TestRepairAtStart(t *testing.T) {
	nettest.Whole(t)
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
	for _, kind := range []string{"route", "sysctl", "qdisc", "addr"} {
		if n := w.countedRepairs(kind); n == 0 {
			t.Errorf("weft_repairs_total counts no %s", kind)
		}
	}
	log := w.log()
	for _, object := range []string{"route " + addr.String(), "qdisc ", "addr " + addr.String()} {
		if n := len(
			regexp.MustCompile(`msg="repaired drift of an attachment".* object="`+object+`[^\n]* age=`).FindAllString(log, -1),
		); n != 1 {
			t.Errorf("%s is logged %d times with its age, want once:\n%s", object, n, log)
		}
	}
	w.stop()
}

// TestRepairOnFullDisk: a repair writes nothing to the agent's disk, and goes on when that is full.
func TestRepairOnFullDisk(t *testing.T) {
	nettest.Whole(t)
	w := newWorld(t)
	if err := os.MkdirAll(w.path("state"), 0o700); err != nil {
		t.Fatal(err)
	}
	nettest.Run(t, nil, "mount", "-t", "tmpfs", "-o", "size=1m", "weft-small", w.path("state"))
	t.Cleanup(func() { w.kill(); nettest.Run(t, nil, "umount", w.path("state")) })
	w.start()
	list, ns := w.list("1.0.0", w.routedOr("routed")), nettest.NS(t, "pod")
	r, err := w.add(list, "c1", ns)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.path("state", "filler"), make([]byte, 2<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	nettest.Run(t, w.node, "ip", "link", "set", r.Interfaces[0].Name, "down")
	nettest.Run(t, ns, "ip", "addr", "flush", "dev", "eth0")
	w.whole("on a full disk", func() error { return w.check(list, "c1", ns) })
}

// TestRepairJoins: the wire between a guest's tap and its pod's link is put back, whichever way it is made, as often as
// somebody takes it away, and counted as a repair of the attachment.
func TestRepairJoins(t *testing.T) {
	nettest.Whole(t)
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
				nettest.Without(t, "no join by "+how+": "+err.Error())
			}
			check := func() error { return w.cni.CheckNetworkList(w.ctx(), direct, second) }
			for range 3 { // each time: a guest that is cut off cannot help itself
				before := w.countedRepairs("join")
				nettest.Run(t, ns, "tc", "qdisc", "del", "dev", "tap0", "ingress")
				w.whole(how, check)
				w.whole(how+", the pod's network", func() error { return w.check(pods, "c1", ns) })
				if n := w.countedRepairs("join"); n <= before {
					t.Errorf("%d joins are counted, %d before", n, before)
				}
			}
			if err := w.cni.DelNetworkList(w.ctx(), direct, second); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDriftEvent: what a pod takes away twice within ten minutes is an event on the pod, once, that says what and
// where; the first time is none.
func TestDriftEvent(t *testing.T) {
	nettest.Whole(t)
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
			!strings.HasSuffix(e, " was removed or changed twice within ten minutes; it is left as it is") {
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
