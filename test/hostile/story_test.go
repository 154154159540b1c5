// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest/forge"
)

// story is an attack that takes its time: something changes while packets are sent.
type story struct {
	area, name, levels string
	// lan: it is tried from an interface that has no end on the attacker's node, too.
	lan bool
	// backend is the only one that it is tried on; "": on all but those that have such stories.
	backend string
	// try returns how many packets were sent and how many arrived that may not; and how many arrived without the guard.
	try func(*campaign) (sent, arrived, control int)
	// fast: it is tried with the fast path, too, and onlyFast: nowhere else.
	fast, onlyFast bool
}

func stories() []story {
	const changes, unasked = "while something changes", "replies and errors not asked for"
	return []story{
		{area: changes, name: "a pod that sends while its ADD runs, and after its DEL", levels: "abc", lan: true, try: firstPackets},
		{area: changes, name: "a guest that sends from the start, and after the DEL of its pod", levels: "d", try: firstFrames},
		{area: changes, name: "a policy that comes and goes a thousand times", levels: "ad", lan: true, try: flips},
		{area: changes, name: "a connection that outlives its policy", levels: "ad", lan: true, fast: true, try: outlivesPolicy},
		{
			area: changes, name: "a connection that outlives the label that allowed it", levels: "ad", lan: true, fast: true,
			try: outlivesLabel,
		},
		{
			area: changes, name: "a connection that outlives its pod, and its address that the next pod has", levels: "a", lan: true,
			fast: true, try: outlivesPod,
		},
		{
			area: changes, name: "a connection that outlives the pod it leads to, whose address the next pod has", levels: "ad",
			lan: true, fast: true, try: outlivesTarget,
		},
		{
			area: changes, name: "segments of a TCP connection outside of its window, with the fast path, of others and after its policy",
			levels: "b", fast: true, onlyFast: true, try: outsideOfWindow,
		},
		{area: unasked, name: "errors about a connection that others have", levels: "bd", fast: true, try: errorsOfOthers},
		{area: unasked, name: "errors about packets to an address that no pod had then", levels: "bd", try: errorsOfBefore},
		{
			area: changes, name: "an interface with another name, another Ethernet address, a larger MTU, made again", levels: "c",
			lan: true, try: interfaces,
		},
		{
			area: "tunnel packets", name: "WireGuard with the stolen key of a node, in another's name than that node's", levels: "bd",
			backend: "wireguard", try: stolenKeys,
		},
	}
}

// storyWorlds are where stories are tried.
func storyWorlds() []spec {
	return append(overVXLAN(), []spec{
		{design: "ipvlan", backend: "none"},
		{design: "routed", backend: "wireguard"},
		{design: "routed", backend: "wireguard", binding: model.VMDirect},
	}...)
}

// includes reports whether a story is tried there.
func (s spec) includes(a story) bool {
	only := ""
	if s.backend == "wireguard" {
		only = s.backend
	}
	if a.backend != only || s.fast != "" && !a.fast || s.fast == "" && a.onlyFast {
		return false
	}
	if s.design == "ipvlan" { // in an emulated VM: macvlan's rules are the same, but this depends on the interface
		return a.levels == string(netAdmin)
	}
	if s.binding != "" {
		return strings.Contains(a.levels, string(inGuest))
	}
	return a.levels != string(inGuest) && (a.lan || !s.onWire())
}

// TestStories tries them on each design.
func TestStories(t *testing.T) { runStories(t, "") }

// TestIPVlanStories, TestWireGuardStories and TestFlowtableStories try them where not every kernel can.
func TestIPVlanStories(t *testing.T)    { runStories(t, "IPVlan") }
func TestWireGuardStories(t *testing.T) { runStories(t, "WireGuard") }
func TestFlowtableStories(t *testing.T) { runStories(t, "Flowtable") }

func runStories(t *testing.T, apart string) {
	needSuite(t)
	for _, at := range of(t, storyWorlds(), apart) {
		t.Run(at.String(), func(t *testing.T) {
			t.Parallel()
			c := newCampaign(t, at)
			for _, s := range stories() {
				if at.includes(s) {
					t.Run(s.name, func(*testing.T) { c.runStory(s) })
				}
			}
			if at.fast != "" {
				c.wasFast()
			}
		})
	}
}

// runStory tries a story and reports its result.
func (c *campaign) runStory(s story) {
	sent, arrived, control := s.try(c)
	verdict := "ok"
	switch {
	case arrived > 0:
		verdict = "ARRIVED"
	case control == 0:
		verdict = "NO CONTROL"
	}
	if verdict != "ok" {
		c.Errorf("%s: %s: %s", c.spec, s.name, verdict)
	}
	report(fmt.Sprintf("%s, %s: %s", c.spec, s.area, s.name), sent, arrived, control, verdict)
}

// stream is a flood of datagrams of one flow, each with the same word.
type stream struct {
	word int
	sent *atomic.Int64
	stop func() int
}

// flood sends from a namespace as fast as it can, until it is stopped: datagrams of one flow, or each of its own where
// flow is 0.
func (c *campaign) flood(ns *netns.NS, flow uint16, to netip.AddrPort) stream {
	return c.floodBy(func(w []byte) {
		s := send{To: to, Datagram: w}
		if flow != 0 {
			from := netip.IPv6Unspecified()
			if to.Addr().Is4() {
				from = netip.IPv4Unspecified()
			}
			s.From = netip.AddrPortFrom(from, flow)
		}
		_ = ns.Do(s.socket)
	})
}

// floodFrom is the same from a pod that may be a guest.
func (c *campaign) floodFrom(p *pod, flow uint16, to netip.AddrPort) stream {
	if p.tap == nil {
		return c.flood(p.ns, flow, to)
	}
	s, i := c.stage(p, inGuest), 0
	if to.Addr().Is6() {
		i = 1
	}
	from := netip.AddrPortFrom(p.addrs[i], flow)
	way := s.way(to.Addr())
	return c.floodBy(func(w []byte) {
		guestWire{p.tap}.do(s.to(way, packet{src: from.Addr(), dst: to.Addr(), proto: protoUDP, body: forge.UDP(from, to, w)}))
	})
}

// floodBy sends a word again and again, until it is stopped.
func (c *campaign) floodBy(one func(w []byte)) stream {
	c.next++
	word := c.next
	var sent atomic.Int64
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			default:
			}
			one(wordOf(word)) // that the kernel refuses it at once is as good as a drop
			sent.Add(1)
			time.Sleep(50 * time.Microsecond)
		}
	}()
	return stream{word, &sent, func() int { close(end); <-done; return int(sent.Load()) }}
}

// heard is how often the stream has been heard at a place.
func (c *campaign) heard(s stream, place string) int { return c.ears.times(s.word, c.place(place)) }

// connects waits until a flow is a connection: it is heard, and what answers it is heard as well.
func (c *campaign) connects(s stream, from, to string) {
	c.Helper()
	c.until(fmt.Sprintf("%s speaks with %s", from, to), func() bool {
		return c.heard(s, "pod:"+to) > 10 && c.ears.times(s.word, "pod:"+from) > 10
	})
}

// quiet waits until nothing of a stream arrives any more, and returns how much did after that. A sender for which a busy
// VM has no time is no end of the stream: what counts is what it sent.
func (c *campaign) quiet(s stream, place string) int {
	sends := func(n int64) {
		for end := s.sent.Load() + n; s.sent.Load() < end; {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(300 * time.Millisecond) // until what was sent is heard
	}
	began := time.Now()
	c.within(10*patience, "the flow ends at "+place, func() bool { // an emulated VM's captures lag far behind a flood
		before := c.heard(s, place)
		sends(500)
		c.fence()
		now := c.heard(s, place)
		c.Logf("%s: after %s %d were sent, %d were heard at %s, %d before", c.spec, time.Since(began), s.sent.Load(), now, place, before)
		return now == before
	})
	before := c.heard(s, place)
	sends(500)
	return c.heard(s, place) - before
}

// firstPackets: a pod floods from before its ADD until after its DEL, in its own name and in others', where it may not.
func firstPackets(c *campaign) (sent, arrived, control int) {
	for round := range 6 {
		n, came := c.early(fmt.Sprintf("early%d", round))
		sent, arrived = sent+n, arrived+came
	}
	// Where no policy selects it, such a pod is heard.
	c.declare("late", c.nodes[0], map[string]string{"app": "free"})
	ns := c.podNS("late")
	s := c.flood(ns, 0, netip.AddrPortFrom(c.pods["guest"].addrs[0], openPort))
	p := c.add("late", c.nodes[0], ns)
	c.until("a pod that may send is heard", func() bool { return c.heard(s, "pod:guest") > 0 })
	s.stop()
	c.del(p)
	return sent, arrived, c.heard(s, "pod:guest")
}

// firstFrames: a guest floods from the moment in which it has a wire until after the DEL of its pod, in its own name and
// in others', where it may not.
func firstFrames(c *campaign) (sent, arrived, control int) {
	guest, far := c.pods["guest"], c.pods["far"]
	for round := range 3 {
		name := fmt.Sprintf("early%d", round)
		c.declare(name, c.nodes[0], map[string]string{"app": "mute"})
		p := c.add(name, c.nodes[0], c.podNS(name))
		c.boot(p)
		own := []stream{
			c.floodFrom(p, 5560, netip.AddrPortFrom(guest.addrs[0], openPort)),
			c.floodFrom(p, 5560, netip.AddrPortFrom(guest.addrs[1], openPort)),
		}
		var others []stream
		s := c.stage(p, inGuest)
		for i := range 2 {
			way := s.way(far.addrs[i])
			for _, src := range []netip.Addr{c.pods["friend"].addrs[i], c.pods["near"].addrs[i]} {
				others = append(others, c.floodBy(func(w []byte) {
					guestWire{p.tap}.do(s.to(way, datagram(src, far.addrs[i], w)))
				}))
			}
		}
		time.Sleep(50 * time.Millisecond)
		c.del(p)
		time.Sleep(20 * time.Millisecond)
		for _, one := range own {
			sent += one.stop()
			arrived += c.heard(one, "pod:guest") + c.heard(one, "wire")
		}
		for _, one := range others {
			sent += one.stop()
			arrived += c.heard(one, "pod:far") + c.heard(one, "wire")
		}
	}
	// Where no policy selects it, such a guest is heard.
	c.declare("early-free", c.nodes[0], map[string]string{"app": "free"})
	p := c.add("early-free", c.nodes[0], c.podNS("early-free"))
	c.boot(p)
	s := c.floodFrom(p, 5560, netip.AddrPortFrom(guest.addrs[0], openPort))
	c.until("a guest that may send is heard", func() bool { return c.heard(s, "pod:guest") > 0 })
	s.stop()
	c.del(p)
	return sent, arrived, c.heard(s, "pod:guest")
}

// early is one such pod, from its ADD to its DEL.
func (c *campaign) early(name string) (sent, arrived int) {
	c.declare(name, c.nodes[0], map[string]string{"app": "mute"})
	ns := c.podNS(name)
	guest, far := c.pods["guest"], c.pods["far"]
	forger := newSender(c, ns, netRaw)
	m := &magazine{next: &c.next}
	var frames []send
	for i := range 2 {
		if c.onWire() {
			break // such frames pass no rule of the pod's
		}
		for _, src := range []netip.Addr{c.pods["friend"].addrs[i], c.pods["near"].addrs[i]} {
			m.add("", func(w []byte) send {
				return send{
					Link: "eth0",
					Frame: forge.Ether(c.stage(c.pods["mallory"], netRaw).router, mac{2, 0, 0, 0, 0, 7}, forge.KindOf(src),
						datagram(src, far.addrs[i], w).bytes()),
				}
			})
			frames = append(frames, m.shots[len(m.shots)-1].send)
		}
	}
	stop, done := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				done <- n
				return
			default:
			}
			if len(frames) == 0 {
				time.Sleep(time.Millisecond)
				continue
			}
			for _, said := range forger.do(frames...) {
				if said == "" {
					n++
				}
			}
		}
	}()
	own := []stream{
		c.flood(ns, 0, netip.AddrPortFrom(guest.addrs[0], openPort)),
		c.flood(ns, 0, netip.AddrPortFrom(guest.addrs[1], openPort)),
	}
	p := c.add(name, c.nodes[0], ns)
	time.Sleep(20 * time.Millisecond)
	c.del(p)
	time.Sleep(20 * time.Millisecond)
	close(stop)
	sent = <-done
	for _, s := range own {
		sent += s.stop()
		arrived += c.heard(s, "pod:guest") + c.heard(s, "wire")
	}
	for _, s := range m.shots {
		arrived += c.ears.times(s.word, "pod:far") + c.ears.times(s.word, "wire")
	}
	return sent, arrived
}

// flips: what is denied all the time stays denied while the policy that says so becomes another one. Without the policy
// it arrives.
func flips(c *campaign) (sent, arrived, control int) {
	mallory := c.pods["mallory"]
	denied := []stream{
		c.floodFrom(mallory, 5561, netip.AddrPortFrom(c.pods["near"].addrs[0], openPort)),
		c.floodFrom(mallory, 5562, netip.AddrPortFrom(c.pods["far"].addrs[1], openPort)),
	}
	allowed := c.floodFrom(mallory, 5563, netip.AddrPortFrom(c.pods["far"].addrs[0], widePort))
	places := []string{"pod:near", "pod:far"}
	var first [2]uint32
	for i, name := range []string{"near", "far"} {
		first[i] = c.generation(c.pods[name])
	}
	// The agent batches what changes faster than it writes, so that of a thousand changes fewer reach the kernel.
	written := func() int {
		return int(min(c.generation(c.pods["near"])-first[0], c.generation(c.pods["far"])-first[1]))
	}
	for n, end := 0, time.Now().Add(5*patience); n < 1000 || written() < 300; n++ {
		if time.Now().After(end) {
			c.Fatalf("of %d changes of the policy %d have reached the kernel of each node, want 300", n, written())
		}
		c.object("policy-closed", networkPolicy("closed", "closed", []string{"Ingress"}, []string{"another", "friend"}[n%2]))
		time.Sleep(3 * time.Millisecond)
	}
	for i, s := range denied {
		arrived += c.heard(s, places[i])
	}
	c.until("what the policy allows", func() bool { return c.heard(allowed, "pod:far") > 0 })
	sent = allowed.stop()
	c.object("policy-closed", networkPolicy("closed", "nobody", []string{"Ingress"}, "friend"))
	for i, s := range denied {
		c.until("what no policy denies any more", func() bool { return c.heard(s, places[i]) > 0 })
		sent += s.stop()
		control += c.heard(s, places[i])
	}
	c.object("policy-closed", networkPolicy("closed", "closed", []string{"Ingress"}, "friend"))
	for i, place := range places {
		c.until("the policy denies again", func() bool {
			s := c.floodFrom(mallory, 5564, netip.AddrPortFrom(c.pods[place[4:]].addrs[i], openPort))
			time.Sleep(20 * time.Millisecond)
			n := s.stop()
			c.fence()
			return n > 0 && c.heard(s, place) == 0
		})
	}
	return sent, arrived, control
}

// outlivesPolicy: a policy comes that denies a connection which is there.
func outlivesPolicy(c *campaign) (sent, arrived, control int) {
	// A policy that allows it is there before: what the kernel does not track yet has no direction.
	open := networkPolicy("door", "door", []string{"Ingress"}, "mallory")
	c.object("policy-door", open)
	c.declare("door", c.nodes[1], map[string]string{"app": "door"})
	door := c.add("door", c.nodes[1], c.podNS("door"))
	c.listen("door", door.ns)
	for i := range 2 {
		to := netip.AddrPortFrom(door.addrs[i], echoPort)
		s := c.floodFrom(c.pods["mallory"], uint16(5550+i), to)
		c.connects(s, "mallory", "door")
		c.object("policy-door", networkPolicy("door", "door", []string{"Ingress"}, "friend"))
		arrived += c.quiet(s, "pod:door")
		sent += s.stop()
		control += c.heard(s, "pod:door")
		c.object("policy-door", open)
		again := c.floodFrom(c.pods["mallory"], uint16(5570+i), to)
		c.connects(again, "mallory", "door")
		again.stop()
	}
	c.del(door)
	return sent, arrived, control
}

// outlivesLabel: a pod loses the label by which it was a friend.
func outlivesLabel(c *campaign) (sent, arrived, control int) {
	for i := range 2 {
		name := fmt.Sprintf("turncoat%d", i)
		if c.binding != "" {
			name = "mallory"
		}
		c.declare(name, c.nodes[0], map[string]string{"app": "friend"})
		p := c.pods[name]
		if p == nil {
			p = c.add(name, c.nodes[0], c.podNS(name))
			c.listen(name, p.ns)
		}
		s := c.floodFrom(p, uint16(5552+i), netip.AddrPortFrom(c.pods["far"].addrs[i], echoPort))
		c.connects(s, name, "far")
		c.declare(name, c.nodes[0], map[string]string{"app": "foe"})
		arrived += c.quiet(s, "pod:far")
		sent += s.stop()
		control += c.heard(s, "pod:far")
		if c.binding == "" {
			c.del(p)
		}
	}
	return sent, arrived, control
}

// outlivesPod: a friend goes, and a pod that is none gets its address; the flow is the same.
func outlivesPod(c *campaign) (sent, arrived, control int) {
	for i := range 2 {
		name := fmt.Sprintf("gone%d", i)
		c.declare(name, c.nodes[0], map[string]string{"app": "friend"})
		gone := c.add(name, c.nodes[0], c.podNS(name))
		c.listen(name, gone.ns)
		flow, to := uint16(5554+i), netip.AddrPortFrom(c.pods["far"].addrs[i], echoPort)
		s := c.flood(gone.ns, flow, to)
		c.connects(s, name, "far")
		sent += s.stop()
		control += c.heard(s, "pod:far")
		c.del(gone)
		c.inherits(fmt.Sprintf("heir%d", i), c.nodes[0], gone.addrs[i], "foe", func(ns *netns.NS, _ string) func(bool) {
			early := c.flood(ns, flow, to)
			return func(bool) {
				sent += early.stop()
				arrived += c.heard(early, "pod:far")
			}
		})
	}
	return sent, arrived, control
}

// outlivesTarget: a pod goes to which others may speak, and a closed one gets its address; the flow never ends.
func outlivesTarget(c *campaign) (sent, arrived, control int) {
	for i := range 2 {
		name := fmt.Sprintf("inn%d", i)
		c.declare(name, c.nodes[1], map[string]string{"app": "inn"})
		inn := c.add(name, c.nodes[1], c.podNS(name))
		c.listen(name, inn.ns)
		s := c.floodFrom(c.pods["mallory"], uint16(5556+i), netip.AddrPortFrom(inn.addrs[i], echoPort))
		c.connects(s, "mallory", name)
		control += c.heard(s, "pod:"+name)
		c.del(inn)
		c.inherits(fmt.Sprintf("vault%d", i), c.nodes[1], inn.addrs[i], "closed", func(ns *netns.NS, heir string) func(bool) {
			c.listen(heir, ns)
			return func(same bool) {
				if same { // on a bridge, the others may get what is for an Ethernet address that no pod has any more
					arrived += c.heard(s, "pod:"+heir)
				}
			}
		})
		sent += s.stop()
	}
	return sent, arrived, control
}

// inherits makes pods of an app until one has an address. Begin is called before the ADD of each, with a name of its own,
// and what it returns after its DEL, with whether it had the address.
func (c *campaign) inherits(
	name string, n *node, address netip.Addr, app string, begin func(*netns.NS, string) func(bool),
) {
	for round := range 40 {
		c.declare(name, n, map[string]string{"app": app})
		heir := fmt.Sprintf("%s-%d", name, round)
		ns := c.podNS(heir)
		finish := begin(ns, heir)
		p := c.add(name, n, ns)
		same := slices.Contains(p.addrs, address)
		if same {
			time.Sleep(300 * time.Millisecond)
		}
		c.del(p)
		finish(same)
		if same {
			return
		}
	}
	c.Errorf("no pod had the address %s again", address)
}

// errorsOfOthers: an allowed peer speaks with a closed pod, and pods that have no part in it send both of them errors
// about it.
func errorsOfOthers(c *campaign) (sent, arrived, control int) {
	friend, far := c.pods["friend"], c.pods["far"]
	peer := newSender(c, friend.ns, netRaw)
	for i := range 2 {
		at, to := netip.AddrPortFrom(friend.addrs[i], 6001), netip.AddrPortFrom(far.addrs[i], openPort)
		m := &magazine{next: &c.next}
		m.add("", func(w []byte) send { return send{From: at, To: to, Datagram: w} })
		c.until("the connection of others", func() bool {
			peer.do(m.shots[0].send)
			return len(c.ears.at(m.shots[0].word, "pod:far")) > 0
		})
		// about reports that what a pod sent did not get there.
		about := func(from *pod, sender, receiver netip.AddrPort) shot {
			m := &magazine{next: &c.next}
			s := c.stage(from, netRaw)
			m.add("", func(w []byte) send {
				lost := packet{
					src: sender.Addr(), dst: receiver.Addr(), proto: protoUDP,
					body: forge.UDP(sender, receiver, slices.Concat(w, make([]byte, 32))),
				}
				p := packet{
					src: from.addrs[i], dst: sender.Addr(), proto: protoICMP,
					body: icmp4(3, 3, slices.Concat([]byte{0, 0, 0, 0}, lost.bytes())),
				}
				if i == 1 {
					p.proto, p.body = protoICMPv6, forge.ICMPv6(p.src, p.dst, 1, slices.Concat([]byte{0, 0, 0, 0}, lost.bytes()))
				}
				return s.to(s.way(p.dst), p)
			})
			return m.shots[0]
		}
		honest := about(friend, to, at)
		for _, from := range []string{"mallory", "mute"} {
			shots := []shot{about(c.pods[from], to, at)}
			if from == "mute" {
				shots = append(shots, about(c.pods[from], at, to))
			}
			for _, s := range shots {
				sent++
				c.frames(from).do(s.send)
				c.fence()
				if at := c.ears.at(s.word, "pod:far", "pod:friend"); len(at) > 0 {
					c.Logf("arrived: an error of %s, %s, at %v", from, familyName(i), at)
					arrived++
				}
			}
		}
		c.until("the peer's own error arrives", func() bool {
			peer.do(honest.send)
			return len(c.ears.at(honest.word, "pod:far")) > 0
		})
		control++
	}
	return sent, arrived, control
}

// errorsOfBefore: packets to an address that no pod has leave its node by the default route, so that the kernel tracks
// them. The next pod with the address is closed: errors about answers that it never sent do not belong to anything.
func errorsOfBefore(c *campaign) (sent, arrived, control int) {
	mallory := c.pods["mallory"]
	s, m := c.stage(mallory, netRaw), &magazine{next: &c.next}
	var errs []shot
	var frames []send
	for i := range 2 {
		first := netip.MustParsePrefix(c.nodes[1].podCIDRs[i]).Addr()
		for a := first.Next(); a.AsSlice()[len(a.AsSlice())-1] < 15; a = a.Next() {
			if slices.ContainsFunc([]string{"far", "guest"}, func(name string) bool { return c.pods[name].addrs[i] == a }) {
				continue
			}
			m.add("", func(w []byte) send { return s.to(s.way(a), datagram(mallory.addrs[i], a, w)) })
			frames = append(frames, m.shots[len(m.shots)-1].send)
			m.add(fmt.Sprintf("an error of %s about an answer of %s", mallory.name, a), func(w []byte) send {
				answer := packet{src: a, dst: mallory.addrs[i], proto: protoUDP, body: forge.UDP(
					netip.AddrPortFrom(a, openPort), netip.AddrPortFrom(mallory.addrs[i], 4000), slices.Concat(w, make([]byte, 32)),
				)}
				p := packet{
					src: mallory.addrs[i], dst: a, proto: protoICMP,
					body: icmp4(3, 3, slices.Concat([]byte{0, 0, 0, 0}, answer.bytes())),
				}
				if i == 1 {
					p.proto, p.body = protoICMPv6, forge.ICMPv6(p.src, p.dst, 1, slices.Concat([]byte{0, 0, 0, 0}, answer.bytes()))
				}
				return s.to(s.way(a), p)
			})
			errs = append(errs, m.shots[len(m.shots)-1])
			frames = append(frames, errs[len(errs)-1].send)
		}
	}
	var rounds atomic.Int64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				c.frames("mallory").do(frames...)
				rounds.Add(1)
			}
		}
	}()
	// The first rounds have the kernel track the packets to all addresses.
	more := func() {
		before := rounds.Load()
		c.until("more errors", func() bool { return rounds.Load() > before+5 })
	}
	more()
	heard := func(place string) (n int) {
		for _, e := range errs {
			n += c.ears.times(e.word, place)
		}
		return n
	}
	const pods = 5
	for round := range pods {
		name := fmt.Sprintf("next%d", round)
		c.declare(name, c.nodes[1], map[string]string{"app": "closed"})
		ns := c.podNS(name)
		c.listen(name, ns)
		p := c.add(name, c.nodes[1], ns)
		more()
		if n := heard("pod:" + name); n > 0 {
			c.Logf("arrived: %d errors at %s", n, name)
			arrived += n
		}
		if round == pods-1 { // a pod that no policy selects gets them
			c.declare(name, c.nodes[1], map[string]string{"app": "free"})
			c.until("errors at a pod that no policy selects", func() bool { return heard("pod:"+name) > 0 })
			control = heard("pod:" + name)
		}
		c.del(p)
	}
	close(stop)
	<-done
	return int(rounds.Load()) * len(frames), arrived, control
}
