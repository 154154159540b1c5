// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

const (
	// widePort is the port at which closed pods may be reached from everywhere.
	widePort = 7001
	// hostPort leads to the closed pod of a node, by a port mapping.
	hostPort = 8080
	// nodePort and the next one lead to the closed pods from any node, by rules like kube-proxy's.
	nodePort = 30080
)

// row is an attack of one attacker in one world.
type row struct {
	attack
	level level
	stage *stage
	shots []shot
	said  []string // what sending said
	again []shot   // the same without the guard
}

func (r row) String() string {
	return fmt.Sprintf("%s, %s, %s: %s", r.stage.w.spec, r.level, r.area, r.name)
}

// campaign is all rows of a world.
type campaign struct {
	*world
	ears    *ears
	senders map[string]attacker // by the pod's name and the level
	rows    []*row
	next    int
}

// TestPackets tries every attack of the table on each design, and those with tunnels on each back end.
func TestPackets(t *testing.T) {
	needSuite(t)
	for _, at := range worlds() {
		t.Run(at.String(), func(t *testing.T) {
			t.Parallel() // they wait more than they work
			newCampaign(t, at).run(at.tries)
		})
	}
}

// TestIPVlanPackets has a name of its own: not every kernel has it.
func TestIPVlanPackets(t *testing.T) {
	needSuite(t)
	at := spec{design: "ipvlan", backend: "none"}
	newCampaign(t, at).run(at.tries)
}

// tries reports whether an attack is tried there.
func (s spec) tries(a attack) bool {
	switch {
	case s.onWire():
		return a.lan && (a.area == "tunnel packets") == (s.backend != "none")
	case s.backend == "vxlan":
		return true
	}
	return a.area == "tunnel packets"
}

// worlds are the designs and back ends that are tried: each design over vxlan, and tunnel packets over each back end.
func worlds() []spec {
	return []spec{
		{"routed", "vxlan", ""},
		{"routed", "host-gw", ""},
		{"routed", "udp", ""},
		{"routed", "wireguard", ""},
		{"routed", "ipip", ""},
		{"bridge", "vxlan", ""},
		{"bridge", "vxlan", model.VMMasquerade},
		{"bridge", "vxlan", model.VMBridge},
		{"bridge", "vxlan", model.VMManagedTap},
		{"bridge", "vxlan", model.VMDirect},
		{"flannel", "vxlan", ""},
		{"macvlan", "none", ""},
		{"macvlan", "vxlan", ""},
		{"routed", "vxlan", model.VMMasquerade},
		{"routed", "vxlan", model.VMBridge},
		{"routed", "vxlan", model.VMManagedTap},
		{"routed", "vxlan", model.VMDirect},
	}
}

func newCampaign(t *testing.T, as spec) *campaign {
	c := &campaign{world: newWorld(t, as), ears: newEars(t), senders: map[string]attacker{}}
	c.populate()
	c.services()
	for name, p := range c.pods {
		c.ears.frames("pod:"+name, p.ns)
		c.ears.socket("inside:"+name, p.ns)
		if as.onWire() {
			c.ears.raw("inside:"+name, p.ns)
		}
	}
	for _, n := range c.nodes {
		c.ears.sockets(n.name, n.ns)
	}
	c.ears.frames("wire", c.wire)
	for _, from := range []string{"mallory", "mute"} {
		for _, l := range c.levels() {
			if l == inGuest {
				c.senders[from+string(l)] = guestWire{c.pods[from].tap}
			} else {
				c.senders[from+string(l)] = newSender(t, c.pods[from].ns, l)
			}
		}
	}
	c.meet()
	return c
}

// levels are those of the attackers.
func (c *campaign) levels() []level {
	if c.binding != "" {
		return []level{inGuest}
	}
	return []level{ordinary, netRaw, netAdmin}
}

// hears reports the places of those where a word has been heard. Where rules stand in the pod itself, it is the sockets
// behind them that must not hear.
func (c *campaign) hears(word int, places ...string) []string {
	if c.onWire() {
		places = slices.Clone(places)
		for i, p := range places {
			if name, is := strings.CutPrefix(p, "pod:"); is {
				places[i] = "inside:" + name
			}
		}
	}
	return c.ears.at(word, places...)
}

// frames is a sender of frames in a pod that attacks, or of what an ordinary process can send where that is all that is
// tried.
func (c *campaign) frames(from string) attacker {
	if levels := c.levels(); len(levels) == 1 {
		return c.senders[from+string(levels[0])]
	}
	return c.senders[from+string(netRaw)]
}

// meet has all pods speak once, and waits until what is allowed passes: all know each other, the mesh and the policies
// stand.
func (c *campaign) meet() {
	for i := range 2 {
		for _, from := range []string{"friend", "guest"} {
			for _, dst := range []string{"near", "far"} {
				c.until(fmt.Sprintf("%s reaches %s", from, dst), func() bool {
					_, err := nettest.Try(c.pods[from].ns, "ping", "-n", "-c1", "-W1", c.pods[dst].addrs[i].String())
					return err == nil
				})
			}
		}
	}
	c.fence()
	for _, way := range [][2]string{{"mallory", "near"}, {"mallory", "far"}, {"mute", "guest"}} {
		for i := range 2 {
			c.until(way[0]+" does not reach "+way[1], func() bool {
				s := c.honest(way[0], way[1], i)
				c.frames(way[0]).do(s.send)
				c.fence()
				return len(c.hears(s.word, "pod:"+way[1])) == 0
			})
		}
	}
}

// honest is a packet in the attacker's own name to an open port.
func (c *campaign) honest(from, to string, i int) shot {
	s, m := c.stage(c.pods[from], netRaw), &magazine{next: &c.next}
	dst := c.pods[to].addrs[i]
	m.add("", func(w []byte) send {
		if c.onWire() {
			return send{To: netip.AddrPortFrom(dst, openPort), Datagram: w}
		}
		return s.to(s.way(dst), datagram(s.me.addrs[i], dst, w))
	})
	return m.shots[0]
}

// run tries what is chosen, then switches the guard off and tries it again.
func (c *campaign) run(choose func(attack) bool) {
	for _, a := range table() {
		if !choose(a) {
			continue
		}
		for _, l := range c.levels() {
			if a.applies(c.world, l) {
				c.rows = append(c.rows, c.row(a, l))
			}
		}
	}
	if c.onWire() {
		c.says("near", "enforced in the pod", "NET_RAW", "NET_ADMIN", "docs/security.md")
	}
	before := c.tables()
	// Without CAP_NET_ADMIN first: with it, a pod takes away what rules there are in its own namespace.
	for _, l := range c.levels() {
		if l == netAdmin {
			for _, from := range []string{"mallory", "mute"} {
				c.senders[from+string(l)].(*sender).run("nft flush ruleset")
			}
		}
		for _, r := range c.rows {
			if r.level == l {
				r.said = c.fire(r, r.shots)
			}
		}
		c.fence()
	}
	arrived := map[*row][]string{}
	for _, r := range c.rows {
		for i, s := range r.shots {
			if s.TCP && r.said[i] == "" {
				arrived[r] = append(arrived[r], s.what+" (a connection)")
			}
			if at := c.hears(s.word, r.at(r.stage)...); len(at) > 0 {
				arrived[r] = append(arrived[r], fmt.Sprintf("%s (at %s)", s.what, strings.Join(at, ", ")))
			}
		}
	}
	if after := c.tables(); after != before {
		c.Errorf("%s: what nodes and pods know of neighbors and routers has changed\nbefore: %s\nafter: %s", c.spec,
			before, after)
	}
	c.disarm()
	for _, r := range c.rows {
		c.control(r, arrived[r])
	}
}

// says: who looks at a pod's policies reads there what they do not hold.
func (c *campaign) says(name string, words ...string) {
	n := c.pods[name].node
	out := nettest.Run(c, n.ns, filepath.Join(nettest.Programs(c), "weft"), "policy", "show", "shop/"+name, "--state-dir",
		c.path(n.name, "state"))
	for _, w := range words {
		if !strings.Contains(out, w) {
			c.Errorf("%s: weft policy show does not say %q of %s:\n%s", c.spec, w, name, out)
		}
	}
}

func (c *campaign) row(a attack, l level) *row {
	r := &row{attack: a, level: l, stage: c.stage(c.pods[a.from], l)}
	m := &magazine{next: &c.next}
	a.shots(r.stage, m)
	r.shots = m.shots
	return r
}

func (c *campaign) fire(r *row, shots []shot) []string {
	var all []send
	for _, s := range shots {
		all = append(all, s.send)
	}
	return c.senders[r.from+string(r.level)].do(all...)
}

// fence waits until honest packets that were sent after all others have arrived, by every way.
func (c *campaign) fence() {
	for _, to := range []string{"friend", "guest"} {
		for i := range 2 {
			s := c.honest("mallory", to, i)
			c.until("the fence at "+to, func() bool {
				c.frames("mallory").do(s.send)
				time.Sleep(5 * time.Millisecond)
				return len(c.hears(s.word, "pod:"+to)) > 0
			})
		}
	}
}

// tables are what nodes and pods know of neighbors and ways, but for what comes and goes by itself.
func (c *campaign) tables() string {
	var b strings.Builder
	spaces := map[string]*netns.NS{"n1": c.nodes[0].ns, "n2": c.nodes[1].ns}
	for _, name := range []string{"near", "far", "friend", "guest"} {
		spaces[name] = c.pods[name].ns
	}
	for _, name := range slices.Sorted(maps.Keys(spaces)) {
		c.until("addresses of "+name+" are not looked for on the link any more", func() bool {
			// then the kernel adds routes for them
			return nettest.Run(c, spaces[name], "ip", "-6", "addr", "show", "tentative") == ""
		})
		for _, argv := range [][]string{
			{"ip", "-4", "route", "show", "table", "all"}, {"ip", "-6", "route", "show", "table", "all"},
		} {
			for line := range strings.Lines(nettest.Run(c, spaces[name], argv...)) {
				if !strings.Contains(line, "cache") {
					fmt.Fprintf(&b, "%s: %s", name, line)
				}
			}
		}
		var neighbors []struct{ Dst, Dev, LLAddr string }
		if err := json.Unmarshal([]byte(nettest.Run(c, spaces[name], "ip", "-j", "neigh", "show", "nud", "permanent")),
			&neighbors); err != nil {
			c.Fatal(err)
		}
		for _, n := range neighbors {
			fmt.Fprintf(&b, "%s: %v\n", name, n)
		}
	}
	return b.String()
}

// forget has all bridges forget behind which port an address is, and their nodes whose it is: without the guard, one
// row would keep the next one's packets away.
func (c *campaign) forget() {
	spaces := map[*netns.NS]bool{}
	for _, p := range c.pods {
		if p.tap != nil {
			spaces[p.ns] = true
		}
	}
	if c.design != "routed" && !c.onWire() {
		spaces[c.nodes[0].ns], spaces[c.nodes[1].ns] = true, true
	}
	for ns := range spaces {
		var links []struct{ IfName string }
		if err := json.Unmarshal([]byte(nettest.Run(c, ns, "ip", "-j", "link", "show", "type", "bridge")),
			&links); err != nil {
			c.Fatal(err)
		}
		for _, l := range links {
			if l.IfName != "" {
				nettest.IP(c, ns, "link set "+l.IfName+" type bridge fdb_flush")
			}
		}
		nettest.IP(c, ns, "neigh flush all")
	}
}

// services has the nodes translate node ports as kube-proxy does, and host ports where the rules of port mappings have
// gone.
func (c *campaign) services() {
	for i, n := range c.nodes {
		local := c.pods[[]string{"near", "far"}[i]]
		rules := []string{
			"add table inet kube", "delete table inet kube", "add table inet kube",
			"add chain inet kube pre { type nat hook prerouting priority -90; }",
			"add chain inet kube post { type nat hook postrouting priority 90; }",
			"add rule inet kube post ct status dnat masquerade",
		}
		for port, to := range map[int]*pod{nodePort: c.pods["near"], nodePort + 1: c.pods["far"], hostPort: local} {
			rules = append(
				rules,
				fmt.Sprintf("add rule inet kube pre meta nfproto ipv4 fib daddr type local udp dport %d dnat ip to %s:%d", port,
					to.addrs[0], openPort),
				fmt.Sprintf("add rule inet kube pre meta nfproto ipv6 fib daddr type local udp dport %d dnat ip6 to [%s]:%d", port,
					to.addrs[1], openPort))
		}
		nettest.Run(c, n.ns, "nft", strings.Join(rules, "; "))
	}
}

// control tries a row without the guard, and says how it ended.
func (c *campaign) control(r *row, arrived []string) {
	c.Helper()
	r.again = c.row(r.attack, r.level).shots
	c.forget()
	missing, before := r.again, c.counters()
	patience := 5 * time.Second
	if r.kernel != "" {
		patience = 100 * time.Millisecond
	}
	for end := time.Now().Add(patience); len(missing) > 0 && !time.Now().After(end); {
		c.fire(r, missing)
		for range 20 {
			missing = slices.DeleteFunc(slices.Clone(missing), func(s shot) bool {
				return len(c.hears(s.word, r.at(r.stage)...)) > 0
			})
			if len(missing) == 0 {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	came := len(r.again) - len(missing)
	verdict := "ok"
	switch {
	case len(arrived) > 0:
		verdict = "ARRIVED"
		c.Errorf("%s: arrived: %s", r, strings.Join(arrived, "; "))
	case len(missing) > 0 && r.kernel == "":
		verdict = "NO CONTROL"
		c.Errorf("%s: without the guard, %s does not arrive either: %s", r, missing[0].what, c.rise(before))
	case len(missing) > 0:
		if verdict = "kernel: " + c.rise(before); verdict == "kernel: " {
			verdict = "NO COUNTER"
			c.Errorf("%s: without the guard, %s does not arrive either, and the kernel counts nothing", r, missing[0].what)
		}
	}
	report(r.String(), len(r.shots), len(arrived), came, verdict)
}

// report prints a row.
func report(row string, sent, arrived, control int, verdict string) {
	fmt.Fprintf(os.Stdout, "hostile: %s: sent %d, arrived %d, without the guard %d: %s\n", row, sent, arrived,
		control, verdict)
}
