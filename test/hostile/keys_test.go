// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"bytes"
	"crypto/ecdh"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	wgtun "golang.zx2c4.com/wireguard/tun"
	"golang.zx2c4.com/wireguard/tun/tuntest"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/nettest/forge"
	"github.com/weft-net/weft/internal/node/tunnel/tun"
)

// wireguardLinks are a node's devices, by family, and wireguardPorts what they listen at.
func wireguardLinks() [2]string { return [2]string{"flannel-wg", "flannel-wg-v6"} }
func wireguardPorts() [2]uint16 { return [2]uint16{51820, 51821} }

// wireguardKeys are a node's private and public key, in WireGuard's text protocol.
func (n *node) wireguardKeys() (private, public string) {
	n.w.Helper()
	text, err := os.ReadFile(n.w.path(n.name, "wireguard.key"))
	if err != nil {
		n.w.Fatal(err)
	}
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		n.w.Fatal(err)
	}
	key, err := ecdh.X25519().NewPrivateKey(b)
	if err != nil {
		n.w.Fatal(err)
	}
	return hex.EncodeToString(b), hex.EncodeToString(key.PublicKey().Bytes())
}

// carryWireGuard does what the agents did for the back end wireguard where the kernel has none.
func (c *campaign) carryWireGuard() {
	for i, n := range c.nodes {
		other := c.nodes[1-i]
		private, _ := n.wireguardKeys()
		_, peer := other.wireguardKeys()
		for f, link := range wireguardLinks() {
			if !userSpace(c.world, n.ns, link) {
				continue
			}
			var dev *device.Device
			err := n.ns.Do(func() error {
				fd, err := tun.Attach(link)
				if err != nil {
					return err
				}
				t, _, err := wgtun.CreateUnmonitoredTUNFromFD(fd)
				if err != nil {
					_ = unix.Close(fd)
					return err
				}
				dev = device.NewDevice(fixedMTU{t}, inside{conn.NewDefaultBind(), n.ns}, silentLogger())
				return nil
			})
			if err != nil {
				c.Fatal(err)
			}
			c.Cleanup(dev.Close)
			c.configure(dev, private, wireguardPorts()[f], peer, netip.AddrPortFrom(other.addrs[f], wireguardPorts()[f]),
				other.podCIDRs[f], netip.PrefixFrom(other.addrs[f], other.addrs[f].BitLen()).String())
		}
	}
}

// configure sets a device's key, port and one peer.
func (w *world) configure(
	dev *device.Device, private string, port uint16, peer string, at netip.AddrPort, allowed ...string,
) {
	w.Helper()
	text := fmt.Sprintf("private_key=%s\nlisten_port=%d\npublic_key=%s\nendpoint=%s\n", private, port, peer, at)
	for _, a := range allowed {
		text += "allowed_ip=" + a + "\n"
	}
	if err := dev.IpcSet(text); err != nil {
		w.Fatal(err)
	}
	if err := dev.Up(); err != nil {
		w.Fatal(err)
	}
}

// userSpace reports whether a program is behind a link.
func userSpace(w *world, ns *netns.NS, link string) bool {
	var links []struct {
		LinkInfo struct {
			Kind string `json:"info_kind"`
		}
	}
	text := nettest.Run(w, ns, "ip", "-j", "-d", "link", "show", "dev", link)
	if err := json.Unmarshal([]byte(text), &links); err != nil || len(links) != 1 {
		w.Fatalf("link %s: %v", link, err)
	}
	return links[0].LinkInfo.Kind == "tun"
}

// fixedMTU is a device that is not asked for its MTU in another namespace.
type fixedMTU struct{ wgtun.Device }

func (fixedMTU) MTU() (int, error) { return 1420, nil }

// inside opens its sockets in a namespace.
type inside struct {
	conn.Bind
	ns *netns.NS
}

func (i inside) Open(port uint16) (fns []conn.ReceiveFunc, actual uint16, err error) {
	err = i.ns.Do(func() (err error) {
		fns, actual, err = i.Bind.Open(port)
		return err
	})
	return fns, actual, err
}

func silentLogger() *device.Logger {
	return &device.Logger{Verbosef: device.DiscardLogf, Errorf: device.DiscardLogf}
}

// stolenKeys: a pod has the key of another node than the one that it speaks to, and is that node there. It can speak in
// the name of that node and of its pods, which is what a key is for, and in no other.
func stolenKeys(c *campaign) (sent, arrived, control int) {
	mallory := c.pods["mallory"]
	for target, n := range c.nodes {
		stolen := c.nodes[1-target]
		peer, closed := c.pods[[]string{"guest", "friend"}[target]], c.pods[[]string{"near", "far"}[target]]
		for f := range 2 {
			tunnel := c.impersonate(mallory, stolen, n, f, uint16(4100+2*target+f))
			m := &magazine{next: &c.next}
			forge := func(what string, src, dst netip.Addr) shot {
				m.add(what, func(w []byte) send { return send{Frame: datagram(src, dst, w).bytes()} })
				s := m.shots[len(m.shots)-1]
				tunnel <- s.Frame
				return s
			}
			heard := func(s shot) []string { return c.ears.at(s.word, mayHear(c.stage(mallory, netRaw))...) }
			honest := func() {
				for _, src := range []netip.Addr{peer.addrs[f], stolen.addrs[f]} {
					for _, dst := range []netip.Addr{closed.addrs[f], n.addrs[f]} {
						if src == stolen.addrs[f] && dst == closed.addrs[f] { // no policy allows it
							continue
						}
						first := len(m.shots)
						c.until(fmt.Sprintf("%s speaks as %s to %s, with the key of %s", mallory.name, src, dst, stolen.name),
							func() bool {
								forge("in its node's name", src, dst)
								return slices.ContainsFunc(m.shots[first:], func(s shot) bool { return len(heard(s)) > 0 })
							})
						control++
					}
				}
			}
			honest()
			var forged []shot
			for _, src := range []netip.Addr{
				closed.addrs[f], n.addrs[f], c.pods[[]string{"friend", "guest"}[target]].addrs[f],
				netip.MustParseAddr([]string{"203.0.113.9", "2001:db8:ff::9"}[f]),
				netip.MustParseAddr([]string{"127.0.0.1", "::1"}[f]),
			} {
				for _, dst := range []netip.Addr{closed.addrs[f], n.addrs[f]} {
					if src != dst {
						forged = append(forged, forge(fmt.Sprintf("of %s to %s", src, dst), src, dst))
					}
				}
			}
			honest() // what was said before has come out of the tunnel
			for _, s := range forged {
				if at := heard(s); len(at) > 0 {
					c.Logf("arrived with the key of %s: %s at %v", stolen.name, s.what, at)
					arrived++
				}
			}
			sent += len(forged)
		}
	}
	return sent, arrived, control
}

// impersonate has a pod be a node for another one, and returns where it says packets.
func (c *campaign) impersonate(from *pod, stolen, to *node, family int, port uint16) chan<- []byte {
	private, _ := stolen.wireguardKeys()
	_, peer := to.wireguardKeys()
	stage, end := c.stage(from, netRaw), netip.AddrPortFrom(to.addrs[family], wireguardPorts()[family])
	own := netip.AddrPortFrom(from.addrs[family], port)
	b := &podBind{arrives: make(chan []byte, 64), from: &conn.StdNetEndpoint{AddrPort: end}}
	sender := attacker(guestWire{from.tap})
	if from.tap == nil { // of its own: WireGuard sends when it wants to
		sender = newSender(c, from.ns, netRaw)
	}
	b.send = func(data []byte) {
		sender.do(stage.to(stage.way(end.Addr()), packet{
			src: own.Addr(), dst: end.Addr(), proto: protoUDP, body: forge.UDP(own, end, data),
		}))
	}
	hear(c, "the tunnel of "+from.name, from.ns, allFrames, func(frame []byte) {
		if data := payloadOf(frame, end.Port(), own); data != nil {
			select {
			case b.arrives <- data:
			default: // as a socket that is full
			}
		}
	})
	t := tuntest.NewChannelTUN()
	dev := device.NewDevice(t.TUN(), b, silentLogger())
	done := make(chan struct{})
	c.Cleanup(func() { dev.Close(); close(done) })
	go func() {
		for {
			select {
			case <-t.Inbound: // what the node says to it
			case <-done:
				return
			}
		}
	}()
	c.configure(dev, private, port, peer, end, "0.0.0.0/0", "::/0")
	return t.Outbound
}

// payloadOf is what is in a frame with a datagram from a port, whatever address a node answers with; nil is another frame.
func payloadOf(frame []byte, from uint16, to netip.AddrPort) []byte {
	head := 14 + 20
	if to.Addr().Is6() {
		head = 14 + 40
	}
	if len(frame) < head+8 || binary.BigEndian.Uint16(frame[12:]) != forge.KindOf(to.Addr()) {
		return nil
	}
	want := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(to.Addr().AsSlice(), from), to.Port())
	if !bytes.Equal(frame[head+4-len(want):head+4], want) {
		return nil
	}
	size := int(binary.BigEndian.Uint16(frame[head+4:]))
	return append([]byte(nil), frame[head+8:min(head+size, len(frame))]...)
}

// podBind sends the packets of a WireGuard device as an attacker in a pod does.
type podBind struct {
	send    func(data []byte)
	arrives chan []byte
	from    conn.Endpoint

	mu     sync.Mutex
	closed chan struct{}
}

func (b *podBind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	closed := make(chan struct{})
	b.closed = closed
	return []conn.ReceiveFunc{func(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
		select {
		case <-closed:
			return 0, net.ErrClosed
		case data := <-b.arrives:
			sizes[0], eps[0] = copy(packets[0], data), b.from
			return 1, nil
		}
	}}, port, nil
}

func (b *podBind) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed != nil {
		close(b.closed)
		b.closed = nil
	}
	return nil
}

func (b *podBind) Send(all [][]byte, _ conn.Endpoint) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, data := range all {
		b.send(data)
	}
	return nil
}

func (*podBind) SetMark(uint32) error                          { return nil }
func (b *podBind) ParseEndpoint(string) (conn.Endpoint, error) { return b.from, nil }
func (*podBind) BatchSize() int                                { return 1 }
