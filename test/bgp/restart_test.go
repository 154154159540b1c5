// SPDX-License-Identifier: Apache-2.0

package bgp_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// traffic sends a datagram from one address to another ten times a second, and counts those that were not answered.
type traffic struct {
	sent, lost atomic.Int64
	stop       chan struct{}
	done       chan struct{}
}

// flow starts traffic from a namespace to an echo server at an address of another one.
func flow(t *testing.T, from *netns.NS, source string, to *netns.NS, target string) *traffic {
	t.Helper()
	at := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(target), 7777))
	var server, client *net.UDPConn
	if err := to.Do(func() (err error) {
		server, err = net.ListenUDP("udp", at)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := from.Do(func() (err error) {
		client, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(source), 0)), at)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	go func() {
		b := make([]byte, 64)
		for {
			n, peer, err := server.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort(b[:n], peer)
		}
	}()
	f := &traffic{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(f.done)
		defer func() { _, _ = server.Close(), client.Close() }()
		b := make([]byte, 64)
		for i := 0; ; i++ {
			select {
			case <-f.stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
			text := fmt.Sprint(i)
			f.sent.Add(1)
			_, err := client.Write([]byte(text))
			// A host that is busy for seconds loses nothing; an answer that is missing after this time was lost.
			_ = client.SetReadDeadline(time.Now().Add(20 * time.Second))
			for err == nil {
				var n int
				if n, err = client.Read(b); err == nil && string(b[:n]) == text {
					break
				}
			}
			if err != nil {
				f.lost.Add(1)
				t.Logf("%s: a datagram is lost: %v", time.Now().UTC().Format("15:04:05.000"), err)
			}
		}
	}()
	t.Cleanup(func() { f.end() })
	return f
}

func (f *traffic) end() {
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	<-f.done
}

// moves waits until more datagrams were answered.
func (f *traffic) moves(t *testing.T) {
	t.Helper()
	before := f.sent.Load()
	eventually(t, "datagrams are sent", func() bool { return f.sent.Load() >= before+10 }, func() string { return "" })
}

// established waits until the node has a session that is, and the routes of all peers.
func (n *node) established() {
	n.t.Helper()
	eventually(n.t, n.name+" has its sessions", func() bool {
		s := n.status()
		if !s.Running || !s.Synced || len(s.Peers) == 0 {
			return false
		}
		for _, p := range s.Peers {
			if p.Session != "established" {
				return false
			}
		}
		return true
	}, func() string { return fmt.Sprintf("%+v", n.status()) })
}

// Neither a killed agent nor a killed weft-bgp loses a packet between a pod and what is behind the router, in either
// direction. What the router has withdrawn meanwhile goes when the routes of the new session are complete.
func TestKilled(t *testing.T) {
	n := newNode(t, "n1")
	tor := router(t, n)
	n.put("node.yaml", nodeManifest("n1", "", []string{"10.244.1.0/24"}, []string{"10.9.0.1"}))
	n.put("peer.yaml", peerTor)
	// A pod and a server. BIRD's routes are in the router's kernel.
	nettest.Run(t, n.ns, "ip", "addr", "add", "10.244.1.7/32", "dev", "lo")
	nettest.Run(t, tor, "ip", "addr", "add", "203.0.113.1/32", "dev", "lo")
	config := birdToN1 + "protocol kernel { ipv4 { export where source = RTS_BGP; }; }\n" +
		"protocol static more { ipv4; route 198.51.100.0/24 blackhole; }\n"
	b := startBird(t, tor, config)
	n.startSpeaker()
	n.startAgent("")
	n.learns("203.0.113.0/24", "10.9.0.2")
	n.learns("198.51.100.0/24", "10.9.0.2")
	b.hears("10.244.1.0/24", "via 10.9.0.1", true)
	n.established()
	f := flow(t, n.ns, "10.244.1.7", tor, "203.0.113.1")
	f.moves(t)

	n.agent.kill()
	f.moves(t)
	n.startAgent("")
	n.established()
	f.moves(t)
	if out := b.ask("show", "protocols", "n1"); !strings.Contains(out, "Established") {
		t.Errorf("the agent's end ended the session: %s", out)
	}

	n.speaker.kill()
	b.ask("disable", "more")
	f.moves(t)
	n.startSpeaker()
	n.forgets("198.51.100.0/24")
	n.established()
	f.moves(t)

	// Both at once, as an upgrade does.
	n.speaker.kill()
	n.agent.kill()
	f.moves(t)
	n.startSpeaker()
	n.startAgent("")
	n.established()
	f.moves(t)
	f.end()
	if lost := f.lost.Load(); lost > 0 {
		t.Errorf("%d of %d datagrams are lost", lost, f.sent.Load())
	}
	if got := n.route("203.0.113.0/24"); got == "" {
		t.Error("the learned route is gone")
	}
}
