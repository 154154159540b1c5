// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// Frames of 0a:58:0a:4d:00:05, 10.77.0.5 and fd77::5.
const (
	sender   = "0a580a4d0005"
	toAll    = "ffffffffffff" + sender
	arpHead  = "0806" + "0001080006040001"
	garp     = toAll + arpHead + sender + "0a4d0005" + "000000000000" + "0a4d0005"
	question = toAll + arpHead + sender + "0a4d0005" + "000000000000" + "a9fe0101"
	rarp     = toAll + "8035" + "0001080006040003" + sender + "00000000" + sender + "00000000"
	ipv4     = "eeeeeeeeeeee" + sender + "0800" + "4500001c000000004011000b" + "0a4d0005" + "0a4d0009" + "0001000200080000"
	six      = "fd770000000000000000000000000005"
	naHead   = "333300000001" + sender + "86dd" + "60000000" + "0020" + "3aff" + six + "ff020000000000000000000000000001"
	na       = naHead + "88000000" + "20000000" + six + "0201" + sender
	asked    = naHead + "88000000" + "60000000" + six + "0201" + sender
	mld      = "333300000016" + sender + "86dd" + "60000000" + "0008" + "3a01" + six + "ff020000000000000000000000000016" +
		"8f00000000000000"
)

func send(t *testing.T, ns *netns.NS, link, frame string) {
	t.Helper()
	b, err := hex.DecodeString(frame)
	if err != nil {
		t.Fatal(err)
	}
	err = ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		r, err := unix.NewIfreq(link)
		if err == nil {
			err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, r)
		}
		if err != nil {
			return err
		}
		return unix.Sendto(fd, b, 0, &unix.SockaddrLinklayer{Ifindex: int(r.Uint32())})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Of all frames of a guest only announcements are reported, with their addresses, and packets if requested; frames in
// the other direction never are.
func TestAnnouncements(t *testing.T) {
	node, pod := nettest.NS(t, "node"), nettest.NS(t, "pod")
	nettest.Run(t, node, "ip", "link", "add", "cali1", "type", "veth", "peer", "name", "eth0", "netns", pod.Path())
	for ns, link := range map[*netns.NS]string{node: "cali1", pod: "eth0"} {
		_, _ = nettest.Try(ns, "sysctl", "-qw", "net.ipv6.conf."+link+".disable_ipv6=1")
		nettest.Run(t, ns, "ip", "link", "set", link, "up")
	}
	awaitUp(t, node, "cali1")
	awaitUp(t, pod, "eth0")
	for name, c := range map[string]struct {
		frames  []string
		packets bool
		want    string
	}{
		"gratuitous ARP":           {[]string{garp}, false, "arp 10.77.0.5"},
		"RARP":                     {[]string{rarp}, false, "rarp invalid IP"},
		"unsolicited NA":           {[]string{na}, false, "nd fd77::5"},
		"questions and packets":    {[]string{question, asked, ipv4, mld, rarp}, false, "rarp invalid IP"},
		"a packet":                 {[]string{question, ipv4}, true, "ip 10.77.0.5"},
		"a packet of IPv6":         {[]string{mld}, true, "ip fd77::5"},
		"an answer":                {[]string{asked}, true, "ip fd77::5"},
		"NA where packets count":   {[]string{na}, true, "nd fd77::5"},
		"garp where packets count": {[]string{garp}, true, "arp 10.77.0.5"},
		"what is no frame": {
			[]string{toAll + "0806" + "0001", toAll + "86dd60", toAll + "8035", garp}, true, "arp 10.77.0.5",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			heard, err := watch.HearAnnouncements(ctx, node, "cali1", c.packets, func(s watch.HeardAnnouncement) bool {
				return s.MAC == [6]byte{0x0a, 0x58, 0x0a, 0x4d, 0, 5} // other hosts may send, too: the kernel does
			})
			if err != nil {
				t.Fatal(err)
			}
			send(t, node, "cali1", garp) // in the direction from the node
			for _, f := range c.frames {
				send(t, pod, "eth0", f)
			}
			select {
			case s := <-heard:
				if got := s.How + " " + s.Addr.String(); got != c.want {
					t.Errorf("heard %s, want %s", got, c.want)
				}
				if s.Proto != 0 && (s.Proto != 17 || s.From.String() != "10.77.0.5:1" || s.To.String() != "10.77.0.9:2") ||
					(s.Proto != 0) != (name == "a packet") {
					t.Errorf("ports: %+v", s)
				}
				if s.Addr.IsValid() && s.Addr != netip.MustParseAddr("10.77.0.5") && s.Addr != netip.MustParseAddr("fd77::5") {
					t.Errorf("address %s", s.Addr)
				}
			case <-time.After(time.Minute):
				t.Error("nothing was heard")
			}
			cancel()
			for range heard { // the channel is closed
			}
		})
	}
	if _, err := watch.HearAnnouncements(t.Context(), node, "none", false, nil); err == nil ||
		!strings.HasPrefix(err.Error(), "watch: what is said on none: ") {
		t.Errorf("a link that is not there: %v", err)
	}
}

// awaitUp waits until the kernel has processed the carrier of a link: frames that are sent before are lost.
func awaitUp(t *testing.T, ns *netns.NS, link string) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !strings.Contains(nettest.Run(t, ns, "ip", "link", "show", link), "state UP"); {
		if time.Now().After(until) {
			t.Fatalf("%s does not come up", link)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestAnnouncementsAfterDown: the frames of a link that was down for a while are received again.
func TestAnnouncementsAfterDown(t *testing.T) {
	node, pod := nettest.NS(t, "node"), nettest.NS(t, "pod")
	nettest.Run(t, node, "ip", "link", "add", "cali1", "type", "veth", "peer", "name", "eth0", "netns", pod.Path())
	nettest.Run(t, pod, "ip", "link", "set", "eth0", "up")
	// it is down
	heard, err := watch.HearAnnouncements(t.Context(), node, "cali1", false, func(s watch.HeardAnnouncement) bool { return s.How == "rarp" })
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"up", "down", "up"} {
		nettest.Run(t, node, "ip", "link", "set", "cali1", to)
	}
	deadline := time.After(time.Minute)
	for {
		send(t, pod, "eth0", rarp) // frames that are sent before the kernel has processed the carrier are lost
		select {
		case s, ok := <-heard:
			if !ok || s.How != "rarp" {
				t.Errorf("heard %+v, %v", s, ok)
			}
			return
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			t.Fatal("nothing was heard")
		}
	}
}

// FuzzDecodeFrame: decoding any frame ends without a panic, and reports only addresses that are in the frame.
func FuzzDecodeFrame(f *testing.F) {
	for _, frame := range []string{garp, question, rarp, ipv4, na, asked, mld} {
		b, err := hex.DecodeString(frame)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		s, ok := watch.DecodeFrame(frame)
		if ok && s.Addr.IsValid() && !strings.Contains(string(frame), string(s.Addr.AsSlice())) {
			t.Errorf("%s is not in the frame", s.Addr)
		}
	})
}
