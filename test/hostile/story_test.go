// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// story is an attack that takes its time: something changes while packets are sent.
type story struct {
	area, name, levels, kernel string
	// try returns how many packets were sent and how many arrived that may not; and how many arrived without the guard.
	try func(*campaign) (sent, arrived, control int)
}

func stories() []story {
	return []story{
		{"while something changes", "a pod that sends while its ADD runs, and after its DEL", "bc", "", firstPackets},
		{"while something changes", "a policy that comes and goes a thousand times", "a", "", flips},
		{"while something changes", "a connection that outlives its policy", "a", "", outlivesPolicy},
		{"while something changes", "a connection that outlives the label that allowed it", "a", "", outlivesLabel},
		{
			"while something changes", "a connection that outlives its pod, and its address that the next pod has", "a",
			"", outlivesPod,
		},
		{"replies and errors not asked for", "errors about a connection that others have", "b", "", errorsOfOthers},
		{
			"while something changes", "an interface with another name, another Ethernet address, a larger MTU, made again", "c",
			"", interfaces,
		},
	}
}

// TestStories tries them on each design.
func TestStories(t *testing.T) {
	needSuite(t)
	for _, design := range []string{"routed", "bridge", "flannel"} {
		t.Run(design, func(t *testing.T) {
			t.Parallel()
			c := newCampaign(t, spec{design: design, backend: "vxlan"})
			for _, s := range stories() {
				t.Run(s.name, func(*testing.T) {
					sent, arrived, control := s.try(c)
					verdict := "ok"
					switch {
					case arrived > 0:
						verdict = "ARRIVED"
					case control == 0:
						verdict = "NO CONTROL"
					}
					if verdict != "ok" {
						t.Errorf("%s: %s: %s", c.spec, s.name, verdict)
					}
					report(fmt.Sprintf("%s, %s: %s", c.spec, s.area, s.name), sent, arrived, control, verdict)
				})
			}
		})
	}
}

// stream is a flood of datagrams of one flow, each with the same word.
type stream struct {
	word int
	stop func() int
}

// flood sends from a namespace as fast as it can, until it is stopped: datagrams of one flow, or each of its own where
// flow is 0.
func (c *campaign) flood(ns *netns.NS, flow uint16, to netip.AddrPort) stream {
	c.next++
	word := c.next
	end, sent := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		_ = ns.Do(func() error {
			for {
				select {
				case <-end:
					return nil
				default:
				}
				s := send{To: to, Datagram: wordOf(word)}
				if flow != 0 {
					from := netip.IPv6Unspecified()
					if to.Addr().Is4() {
						from = netip.IPv4Unspecified()
					}
					s.From = netip.AddrPortFrom(from, flow)
				}
				if s.do() == nil {
					n++
				}
				time.Sleep(50 * time.Microsecond)
			}
		})
		sent <- n
	}()
	return stream{word, func() int { close(end); return <-sent }}
}

// heard is how often the stream has been heard at a place.
func (c *campaign) heard(s stream, place string) int { return c.ears.times(s.word, place) }

// quiet waits until nothing of a stream arrives any more, and returns how much did after that.
func (c *campaign) quiet(s stream, place string) int {
	c.until("the flow ends at "+place, func() bool {
		before := c.heard(s, place)
		time.Sleep(200 * time.Millisecond)
		return c.heard(s, place) == before
	})
	before := c.heard(s, place)
	time.Sleep(time.Second)
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

// early is one such pod, from its ADD to its DEL.
func (c *campaign) early(name string) (sent, arrived int) {
	c.declare(name, c.nodes[0], map[string]string{"app": "mute"})
	ns := c.podNS(name)
	guest, far := c.pods["guest"], c.pods["far"]
	forger := newSender(c, ns, netRaw)
	m := &magazine{next: &c.next}
	var frames []send
	for i := range 2 {
		for _, src := range []netip.Addr{c.pods["friend"].addrs[i], c.pods["near"].addrs[i]} {
			m.add("", func(w []byte) send {
				return send{
					Link: "eth0",
					Frame: ether(c.stage(c.pods["mallory"], netRaw).router, mac{2, 0, 0, 0, 0, 7}, kindOf(src),
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

// flips: what is denied all the time stays denied while the policy that says so becomes another one.
func flips(c *campaign) (sent, arrived, control int) {
	mallory := c.pods["mallory"].ns
	denied := []stream{
		c.flood(mallory, 0, netip.AddrPortFrom(c.pods["near"].addrs[0], openPort)),
		c.flood(mallory, 0, netip.AddrPortFrom(c.pods["far"].addrs[1], openPort)),
	}
	allowed := c.flood(mallory, 0, netip.AddrPortFrom(c.pods["far"].addrs[0], widePort))
	for n := range 1000 {
		c.object("policy-closed", networkPolicy("closed", "closed", []string{"Ingress"}, []string{"stranger", "friend"}[n%2]))
		time.Sleep(3 * time.Millisecond)
	}
	allowed.stop()
	for i, s := range denied {
		sent += s.stop()
		arrived += c.heard(s, []string{"pod:near", "pod:far"}[i])
	}
	return sent, arrived, c.heard(allowed, "pod:far")
}

// outlivesPolicy: a policy comes that denies a connection which is there.
func outlivesPolicy(c *campaign) (sent, arrived, control int) {
	c.declare("door", c.nodes[1], map[string]string{"app": "door"})
	door := c.add("door", c.nodes[1], c.podNS("door"))
	c.ears.frames("pod:door", door.ns)
	for i := range 2 {
		s := c.flood(c.pods["mallory"].ns, uint16(5550+i), netip.AddrPortFrom(door.addrs[i], openPort))
		c.until("the connection to the open door", func() bool { return c.heard(s, "pod:door") > 10 })
		c.object("policy-door", networkPolicy("door", "door", []string{"Ingress"}, "friend"))
		control += c.heard(s, "pod:door")
		arrived += c.quiet(s, "pod:door")
		sent += s.stop()
		c.object("policy-door", networkPolicy("door", "other", []string{"Ingress"}, "friend"))
		c.until("the door to be open again", func() bool {
			_, err := nettest.Try(c.pods["mallory"].ns, "ping", "-n", "-c1", "-W1", door.addrs[1].String())
			return err == nil
		})
	}
	c.del(door)
	return sent, arrived, control
}

// outlivesLabel: a pod loses the label by which it was a friend.
func outlivesLabel(c *campaign) (sent, arrived, control int) {
	for i := range 2 {
		name := fmt.Sprintf("turncoat%d", i)
		c.declare(name, c.nodes[0], map[string]string{"app": "friend"})
		p := c.add(name, c.nodes[0], c.podNS(name))
		s := c.flood(p.ns, 5552, netip.AddrPortFrom(c.pods["far"].addrs[i], openPort))
		c.until("a friend is heard", func() bool { return c.heard(s, "pod:far") > 10 })
		c.declare(name, c.nodes[0], map[string]string{"app": "foe"})
		control += c.heard(s, "pod:far")
		arrived += c.quiet(s, "pod:far")
		sent += s.stop()
		c.del(p)
	}
	return sent, arrived, control
}

// outlivesPod: a friend goes, and a pod that is none gets its address; the flow is the same.
func outlivesPod(c *campaign) (sent, arrived, control int) {
	c.declare("gone", c.nodes[0], map[string]string{"app": "friend"})
	gone := c.add("gone", c.nodes[0], c.podNS("gone"))
	to := netip.AddrPortFrom(c.pods["far"].addrs[0], openPort)
	s := c.flood(gone.ns, 5553, to)
	c.until("a friend is heard", func() bool { return c.heard(s, "pod:far") > 10 })
	sent = s.stop()
	control = c.heard(s, "pod:far")
	address := gone.addrs[0]
	c.del(gone)
	for round := range 40 {
		name := fmt.Sprintf("heir%d", round)
		c.declare(name, c.nodes[0], map[string]string{"app": "foe"})
		ns := c.podNS(name)
		early := c.flood(ns, 5553, to)
		p := c.add(name, c.nodes[0], ns)
		same := p.addrs[0] == address
		if same {
			time.Sleep(300 * time.Millisecond)
		}
		c.del(p)
		sent += early.stop()
		arrived += c.heard(early, "pod:far")
		if same {
			return sent, arrived, control
		}
	}
	c.Errorf("no pod had the address %s again", address)
	return sent, arrived, control
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
		// about says that what a pod sent did not get there.
		about := func(from *pod, sender, receiver netip.AddrPort) shot {
			m := &magazine{next: &c.next}
			s := c.stage(c.pods["mallory"], netRaw)
			s.me = from
			m.add("", func(w []byte) send {
				lost := packet{
					src: sender.Addr(), dst: receiver.Addr(), proto: protoUDP,
					body: udp(sender, receiver, slices.Concat(w, make([]byte, 32))),
				}
				p := packet{
					src: from.addrs[i], dst: sender.Addr(), proto: protoICMP,
					body: icmp4(3, 3, slices.Concat([]byte{0, 0, 0, 0}, lost.bytes())),
				}
				if i == 1 {
					p.proto, p.body = protoICMPv6, icmp6(p.src, p.dst, 1, slices.Concat([]byte{0, 0, 0, 0}, lost.bytes()))
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
				c.senders[from+string(netRaw)].do(s.send)
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
