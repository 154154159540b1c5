// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"cmp"
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
	// echoPort is where pods answer: the kernel takes a flow for a connection when it has seen both of its directions.
	echoPort = 7002
	// hostPort leads to the closed pod of a node, by a port mapping.
	hostPort = 8080
	// nodePort and the next one lead to the closed pods from any node, by rules like kube-proxy's.
	nodePort = 30080
	// wordsOfWorld are the words of one world: others attack at the same time, and the kernel says of all what it drops.
	wordsOfWorld = 1_000_000
)

// row is an attack of one attacker in one world.
type row struct {
	attack
	level level
	stage *stage
	shots []shot
	said  []string // what sending said
}

func (r row) String() string {
	return fmt.Sprintf("%s, %s, %s: %s", r.stage.w.spec, r.level, r.area, r.name)
}

// campaign is all rows of a world.
type campaign struct {
	*world
	ears    *ears
	drops   *drops              // when the guard is off
	senders map[string]attacker // by the pod's name and the level
	rows    []*row
	next    int
}

// TestPackets tries every attack of the table on each design, and those with tunnels on each back end.
func TestPackets(t *testing.T) { packets(t, "") }

// TestIPVlanPackets, TestIPIPPackets, TestWireGuardPackets and TestFlowtablePackets try them where not every kernel can.
func TestIPVlanPackets(t *testing.T)    { packets(t, "IPVlan") }
func TestIPIPPackets(t *testing.T)      { packets(t, "IPIP") }
func TestWireGuardPackets(t *testing.T) { packets(t, "WireGuard") }
func TestFlowtablePackets(t *testing.T) { packets(t, "Flowtable") }

func packets(t *testing.T, apart string) {
	needSuite(t)
	for _, at := range of(t, worlds(), apart) {
		t.Run(at.String(), func(t *testing.T) {
			t.Parallel() // they wait more than they work
			newCampaign(t, at).run(at.tries)
		})
	}
}

// of are the worlds of a test. Where the kernel lacks what it has its name from, it is skipped as a whole.
func of(t *testing.T, all []spec, apart string) []spec {
	t.Helper()
	all = slices.DeleteFunc(all, func(s spec) bool {
		feature, _ := s.apart()
		return feature != apart
	})
	if apart != "" {
		all[0].need(t)
	}
	return all
}

// tries reports whether an attack is tried there.
func (s spec) tries(a attack) bool {
	switch {
	case s.onWire():
		return a.lan && (a.area == "tunnel packets") == (s.backend != "none")
	case s.fast != "":
		return a.area == "forged sources" || a.area == "replies and errors not asked for"
	case s.backend == "vxlan":
		return true
	}
	return a.area == "tunnel packets"
}

// overVXLAN are the worlds of packets and of stories: each design, with a VM by each binding, and with each fast path.
func overVXLAN() []spec {
	return []spec{
		{design: "routed", backend: "vxlan"},
		{design: "routed", backend: "vxlan", fast: "ebpf"},
		{design: "routed", backend: "vxlan", binding: model.VMDirect, fast: "ebpf"},
		{design: "routed", backend: "vxlan", fast: flowtable},
		{design: "routed", backend: "vxlan", binding: model.VMDirect, fast: flowtable},
		{design: "routed", backend: "vxlan", binding: model.VMMasquerade},
		{design: "routed", backend: "vxlan", binding: model.VMBridge},
		{design: "routed", backend: "vxlan", binding: model.VMManagedTap},
		{design: "routed", backend: "vxlan", binding: model.VMDirect},
		{design: "bridge", backend: "vxlan"},
		{design: "bridge", backend: "vxlan", binding: model.VMMasquerade},
		{design: "bridge", backend: "vxlan", binding: model.VMBridge},
		{design: "bridge", backend: "vxlan", binding: model.VMManagedTap},
		{design: "bridge", backend: "vxlan", binding: model.VMDirect},
		{design: "flannel", backend: "vxlan"},
		{design: "macvlan", backend: "none"},
	}
}

// worlds are the designs and back ends that are tried: each design over vxlan, and tunnel packets over each back end, from
// a routed pod, a bridged one and a guest.
func worlds() []spec {
	return append(overVXLAN(), []spec{
		{design: "macvlan", backend: "vxlan"},
		{design: "ipvlan", backend: "none"},
		{design: "ipvlan", backend: "vxlan"},
		{design: "routed", backend: "host-gw"},
		{design: "bridge", backend: "host-gw"},
		{design: "routed", backend: "host-gw", binding: model.VMDirect},
		{design: "routed", backend: "udp"},
		{design: "bridge", backend: "udp"},
		{design: "routed", backend: "udp", binding: model.VMDirect},
		{design: "routed", backend: "ipip"},
		{design: "bridge", backend: "ipip"},
		{design: "routed", backend: "ipip", binding: model.VMDirect},
		{design: "routed", backend: "wireguard"},
		{design: "bridge", backend: "wireguard"},
		{design: "routed", backend: "wireguard", binding: model.VMDirect},
	}...)
}

func newCampaign(t *testing.T, as spec) *campaign {
	c := &campaign{
		world: newWorld(t, as), ears: newEars(t), senders: map[string]attacker{},
		next: slices.Index(worlds(), as) * wordsOfWorld,
	}
	c.populate()
	c.services()
	for name, p := range c.pods {
		c.listen(name, p.ns)
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
	places = slices.Clone(places)
	for i, p := range places {
		places[i] = c.place(p)
	}
	return c.ears.at(word, places...)
}

// place is where a pod must not hear.
func (c *campaign) place(p string) string {
	if name, is := strings.CutPrefix(p, "pod:"); is && c.onWire() {
		return "inside:" + name
	}
	return p
}

// listen listens in a pod.
func (c *campaign) listen(name string, ns *netns.NS) {
	c.ears.frames("pod:"+name, ns)
	c.ears.socket("inside:"+name, ns)
	c.ears.echo(ns)
	if c.onWire() {
		c.ears.raw("inside:"+name, ns)
	}
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
				if c.pods[from].node != c.pods[dst].node && !c.carries(i) {
					continue
				}
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
		c.says("near", "enforced in the pod", "NET_RAW", "NET_ADMIN", "docs/design/security.md")
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
	c.drops = hearDrops(c, c.ears)
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
		all = append(append(all, s.send), s.more...)
	}
	said := c.senders[r.from+string(r.level)].do(all...)
	for i, s := range shots { // of each its first piece's
		said = slices.Delete(said, i+1, i+1+len(s.more))
	}
	return said
}

// fence waits until honest packets that were sent after all others have arrived, by every way.
func (c *campaign) fence() {
	for _, to := range []string{"friend", "guest"} {
		for i := range 2 {
			if to == "guest" && !c.carries(i) {
				continue
			}
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
		var lines []string // the kernel's order is that of a hash table
		for _, n := range neighbors {
			lines = append(lines, fmt.Sprintf("%s: %v\n", name, n))
		}
		slices.Sort(lines)
		b.WriteString(strings.Join(lines, ""))
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
	if c.bridged() {
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

// unlearn has a pod's kernel forget what it believed of its neighbors and routers: it is what sends for an ordinary process.
func (c *campaign) unlearn(p *pod) {
	nettest.IP(c, p.ns, "neigh flush all nud reachable nud stale nud delay nud probe nud failed")
	nettest.IP(c, p.ns, "-6 route flush proto ra")
	nettest.IP(c, p.ns, "-4 route flush cache")
	nettest.IP(c, p.ns, "-6 route flush cache")
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

// control tries a row without the guard, and says how it ended: then all of it arrives but what the kernel itself drops,
// and of that there is a witness.
func (c *campaign) control(r *row, arrived []string) {
	c.Helper()
	again := c.row(r.attack, r.level).shots
	c.forget()
	if r.level == ordinary {
		c.unlearn(c.pods[r.from])
	}
	missing, said := again, map[int]string{}
	for end := time.Now().Add(patience / 3); len(missing) > 0 && !time.Now().After(end); {
		for i, fault := range c.fire(r, missing) {
			said[missing[i].word] = fault
		}
		for range 20 {
			missing = slices.DeleteFunc(slices.Clone(missing), func(s shot) bool {
				return len(c.hears(s.word, r.at(r.stage)...)) > 0 || s.dropped && c.witness(r, s, said[s.word]) != ""
			})
			if len(missing) == 0 {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	came, dropped := 0, map[string]int{}
	verdict := "ok"
	fail := func(with, format string, args ...any) {
		verdict = with
		c.Errorf("%s: "+format, append([]any{r}, args...)...)
	}
	for _, s := range again {
		at, witness := c.hears(s.word, r.at(r.stage)...), c.witness(r, s, said[s.word])
		switch {
		case len(at) > 0 && s.dropped:
			fail("NO DROP", "%s arrives at %s without the guard, which the kernel is said to drop", s.what, at)
		case len(at) > 0:
			came++
		case !s.dropped:
			fail("NO CONTROL", "without the guard, %s does not arrive either: %s", s.what, cmp.Or(witness, "no trace"))
		case witness == "":
			fail("NO WITNESS", "without the guard, %s does not arrive either, and nothing is seen to drop it", s.what)
		case r.kernel == "":
			fail("NO REASON", "%s is dropped (%s), and the table does not say that anything is", s.what, witness)
		default:
			dropped[witness]++
		}
	}
	if len(arrived) > 0 {
		fail("ARRIVED", "arrived: %s", strings.Join(arrived, "; "))
	}
	if verdict == "ok" && len(dropped) > 0 {
		var parts []string
		for _, why := range slices.Sorted(maps.Keys(dropped)) {
			parts = append(parts, fmt.Sprintf("%d %s", dropped[why], why))
		}
		verdict = "kernel: " + strings.Join(parts, "; ")
	}
	report(r.String(), len(r.shots), len(arrived), came, verdict)
}

// witness says what became of a packet that no guard kept away and that did not arrive: why the kernel dropped it, that a
// node took it for itself, that it could not be sent. None: it came to nothing, as if it were no packet.
func (c *campaign) witness(r *row, s shot, said string) string {
	if why := c.drops.of(s.word); len(why) > 0 {
		return strings.Join(why, ", ")
	}
	places := []string{"node:n1", "node:n2"}
	if r.stage.translated() { // its pod is the first router
		places = append(places, "pod:"+r.from)
	}
	if at := c.ears.at(s.word, places...); len(at) > 0 {
		return "taken by " + strings.Join(at, ", ")
	}
	return said
}

// report prints a row.
func report(row string, sent, arrived, control int, verdict string) {
	fmt.Fprintf(os.Stdout, "hostile: %s: sent %d, arrived %d, without the guard %d: %s\n", row, sent, arrived,
		control, verdict)
}
