// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest/forge"
)

// testHostileGuest: root in the guest sends what no guest may send, to a pod on its node and to one on another node. Frames
// with spoofed addresses, tags, router advertisements and the like arrive nowhere: not at the pods and not on the wire between
// the nodes. Behind masquerade KubeVirt's router in the pod makes ordinary packets of some of them; these have the pod's own
// address.
func (c kubeVirtCluster) testHostileGuest(t *testing.T, ns, binding string, addrs []string) {
	node := c.where(t, ns)
	for _, where := range []string{node, "node3"} {
		peer := c.podOn(t, ns, where)
		s := c.stage(t, ns, binding, addrs, peer)
		words := newWords(t)
		words.listen(peer.Metadata.Name, netnsOf(t, c.kubectl(t, "-n", ns, "get", "pod", peer.Metadata.Name, "-o",
			"jsonpath={.status.containerStatuses[0].containerID}")), "")
		for _, n := range c.nodes(t) {
			for _, wire := range []string{"eth0", "eth1"} {
				words.listen(n+"'s "+wire, "/run/netns/wk-"+c.name+"-"+n, wire)
			}
		}
		attacks := s.Attacks()
		for some := range slices.Chunk(attacks, 10) {
			var frames [][]byte
			for _, a := range some {
				frames = append(frames, a.Frame)
			}
			c.sendFrames(t, ns, frames)
		}
		for i := range addrs { // after them: what has not arrived by then was dropped
			words.forget(forge.Fence)
			eventually(t, vmTime, func() error {
				c.sendFrames(t, ns, [][]byte{s.Honest(i)})
				return words.await(peer.Metadata.Name, forge.Fence)
			})
		}
		arrived, ordinary := 0, 0
		for _, a := range attacks {
			for place, frame := range words.heard(string(a.Word)) {
				arrived++
				why := notOf(frame, addrs)
				// As any pod may, a guest sends from the ports of a DHCP server to a pod that has sent no request.
				if why == "" && (binding == "masquerade" || strings.HasPrefix(a.Name, "a DHCP")) {
					ordinary++
					continue
				}
				t.Errorf("%s of the guest arrived at %s: %s: %x", a.Name, place, why, frame)
			}
		}
		t.Logf("%s, to a pod on %s (the VM is on %s): %d frames, of which %d were heard somewhere, %d as packets of the pod's own address",
			binding, where, node, len(attacks), arrived, ordinary)
		for i := range addrs {
			c.reachByFamily(t, ns, peer, addrs[i])
		}
	}
}

// stage returns what the guest knows about a pod.
func (c kubeVirtCluster) stage(t *testing.T, ns, binding string, addrs []string, peer Pod) (s forge.Stage) {
	t.Helper()
	s.Gateway = [2]netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1")}
	s.Own = [2]netip.Addr{netip.MustParseAddr(addrs[0]), netip.MustParseAddr(addrs[1])}
	if binding == "masquerade" {
		s.Gateway = [2]netip.Addr{netip.MustParseAddr("10.0.2.1"), netip.MustParseAddr("fd10:0:2::1")}
		s.Own = [2]netip.Addr{netip.MustParseAddr("10.0.2.2"), netip.MustParseAddr("fd10:0:2::2")}
	}
	if out := c.must(t, "exec", c.where(t, ns), "ip", "-o", "addr", "show"); binding != "masquerade" && strings.Contains(out, " weft0 ") {
		for i, prefix := range c.prefixes(t, c.where(t, ns)) { // its bridge has the gateways
			s.Gateway[i] = prefix.Masked().Addr().Next()
		}
	}
	for i := range s.Peer {
		s.Peer[i] = netip.MustParseAddr(peer.Status.PodIPs[i].IP)
	}
	mac := func(text string) []byte {
		m, err := net.ParseMAC(strings.TrimSpace(text))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	s.Victim = mac(c.kubectl(t, "-n", ns, "exec", peer.Metadata.Name, "--", "cat", "/sys/class/net/eth0/address"))
	eventually(t, vmTime, func() error {
		out, err := c.guest(ns, "vm", fmt.Sprintf("ping -c 1 -W 5 %s >/dev/null; cat /sys/class/net/eth0/address && grep '^%s ' /proc/net/arp && ip -6 -o addr show dev eth0 scope link",
			s.Peer[0], s.Gateway[0]))
		if err != nil {
			return err
		}
		f := regexp.MustCompile(`[0-9a-f]{2}(?::[0-9a-f]{2}){5}`).FindAllString(out, -1)
		local := regexp.MustCompile(`fe80::[0-9a-f:]+`).FindString(out)
		if len(f) != 2 || local == "" {
			return fmt.Errorf("the guest says %q, want its MAC, its gateway's and a link-local address", out)
		}
		s.MAC, s.To, s.Local = mac(f[0]), mac(f[1]), netip.MustParseAddr(local)
		return nil
	})
	return s
}

// sendFrames lets the guest send frames as they are.
func (c kubeVirtCluster) sendFrames(t *testing.T, ns string, frames [][]byte) {
	t.Helper()
	line := "guest-tools frames eth0"
	for _, f := range frames {
		line += " " + base64.StdEncoding.EncodeToString(f)
	}
	eventually(t, vmTime, func() error {
		_, err := c.guest(ns, "vm", line)
		return err
	})
}

// notOf says why a frame is none that a pod with the addresses may have sent, or "".
func notOf(frame []byte, addrs []string) string {
	const ethernet, ip4, ip6, vxlan = 14, 20, 40, 8 + 8
	for _, outer := range []struct{ kind, header, proto int }{{forge.TypeIPv4, ip4, 9}, {forge.TypeIPv6, ip6, 6}} {
		end := ethernet + outer.header
		if len(frame) > end+vxlan+ethernet && int(binary.BigEndian.Uint16(frame[12:])) == outer.kind &&
			frame[ethernet+outer.proto] == forge.ProtoUDP && binary.BigEndian.Uint16(frame[end+2:]) == 8472 {
			frame = frame[end+vxlan:]
			break
		}
	}
	var src netip.Addr
	var proto byte
	switch kind := binary.BigEndian.Uint16(frame[12:]); {
	case kind == forge.TypeIPv4 && len(frame) >= ethernet+ip4:
		src, proto = netip.AddrFrom4([4]byte(frame[26:30])), frame[23]
	case kind == forge.TypeIPv6 && len(frame) >= ethernet+ip6:
		src, proto = netip.AddrFrom16([16]byte(frame[22:38])), frame[20]
	default:
		return fmt.Sprintf("Ethernet type %#x", kind)
	}
	if !slices.Contains(addrs, src.String()) {
		return "source " + src.String()
	}
	if proto != forge.ProtoUDP {
		return fmt.Sprintf("protocol %d", proto)
	}
	return ""
}

// words hears the words of forged frames at several places.
type words struct {
	t   *testing.T
	mu  sync.Mutex
	got map[string]map[string][]byte // by word and place the first frame
}

func newWords(t *testing.T) *words { return &words{t: t, got: map[string]map[string][]byte{}} }

// listen hears all frames that arrive at a namespace's links, or at one of them.
func (w *words) listen(place, namespace, link string) {
	w.t.Helper()
	ns, err := netns.Open(namespace)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	fd := -1
	err = ns.Do(func() (err error) {
		const all = 0x0300 // ETH_P_ALL on the wire
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
			return err
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
		if link == "" {
			return nil
		}
		ifc, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifc.Index})
	})
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000})
	}
	if err != nil {
		w.t.Fatalf("listen at %s: %v", place, err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	w.t.Cleanup(func() { close(stop); <-done; _ = unix.Close(fd) })
	word := regexp.MustCompile(`EVIL-\d\d-|` + forge.Fence)
	go func() {
		defer close(done)
		for b := make([]byte, 1<<16); ; {
			select {
			case <-stop:
				return
			default:
			}
			n, _, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				continue // nothing has arrived meanwhile
			}
			if said := word.Find(b[:n]); said != nil {
				w.note(string(said), place, bytes.Clone(b[:n]))
			}
		}
	}()
}

func (w *words) note(word, place string, frame []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.got[word] == nil {
		w.got[word] = map[string][]byte{}
	}
	if w.got[word][place] == nil {
		w.got[word][place] = frame
	}
}

// heard returns the places where a word was heard, with the frames.
func (w *words) heard(word string) map[string][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.got[word]
}

func (w *words) forget(word string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.got, word)
}

// await waits a moment for a word at a place.
func (w *words) await(place, word string) error {
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if w.heard(word)[place] != nil {
			return nil
		}
	}
	return fmt.Errorf("%s has not heard %s", place, word)
}
