// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"bytes"
	"compress/gzip"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/state"
)

func udp(from, to, answers, back string) state.ConntrackEntry {
	p := netip.MustParseAddrPort
	return state.ConntrackEntry{
		Connection: state.Connection{Proto: 17, Src: p(from), Dst: p(to), ReplySrc: p(answers), ReplyDst: p(back)}, Timeout: 600,
	}
}

// TestHere: of the source node's connections, this node tracks the VM's, with the addresses that its packets have here.
func TestHere(t *testing.T) {
	f := &vmFollower{addrs: []netip.Addr{netip.MustParseAddr("10.1.0.5"), netip.MustParseAddr("fd00::5")}}
	broken := udp("10.1.0.5:1", "10.2.0.9:53", "10.2.0.9:53", "10.1.0.5:1")
	broken.ReplyDst = netip.AddrPort{}
	tcp := udp("10.1.0.5:1", "10.2.0.9:53", "10.2.0.9:53", "10.1.0.5:1")
	tcp.Proto = 6 // without a state
	for name, c := range map[string]struct {
		said state.ConntrackEntry
		want string // empty: not tracked
	}{
		"to the machine": {
			udp("10.2.0.9:4", "10.1.0.5:80", "10.1.0.5:80", "10.2.0.9:4"), "10.2.0.9:4 10.1.0.5:80 10.1.0.5:80 10.2.0.9:4",
		},
		"from the machine to a service": {
			udp("10.1.0.5:4", "10.96.0.1:53", "10.2.0.9:5353", "10.1.0.5:4"), "10.1.0.5:4 10.96.0.1:53 10.2.0.9:5353 10.1.0.5:4",
		},
		"out under the node's address": {udp("10.1.0.5:4", "8.8.8.8:53", "8.8.8.8:53", "192.0.2.1:4"), ""},
		"by a port of the node": {
			udp("198.51.100.1:4", "192.0.2.1:30080", "10.1.0.5:80", "192.0.2.1:9"),
			"192.0.2.1:9 10.1.0.5:80 10.1.0.5:80 192.0.2.1:9",
		},
		"another machine's": {udp("10.2.0.9:4", "10.1.0.6:80", "10.1.0.6:80", "10.2.0.9:4"), ""},
		"IPv6": {
			udp("[fd00::9]:4", "[fd00::5]:80", "[fd00::5]:80", "[fd00::9]:4"),
			"[fd00::9]:4 [fd00::5]:80 [fd00::5]:80 [fd00::9]:4",
		},
		"of two families":        {udp("10.1.0.5:4", "[fd00::9]:53", "[fd00::9]:53", "10.1.0.5:4"), ""},
		"without an end":         {broken, ""},
		"of TCP without a state": {tcp, ""},
	} {
		got := f.here(connections{Host: []state.ConntrackEntry{c.said}, Pod: []state.ConntrackEntry{c.said}})
		text := ""
		for _, h := range got.Host {
			text = strings.Join([]string{h.Src.String(), h.Dst.String(), h.ReplySrc.String(), h.ReplyDst.String()}, " ")
			if got.brief().Host[0].Timeout != 120 || h.Timeout != 600 {
				t.Errorf("%s: times %d and %d", name, h.Timeout, got.brief().Host[0].Timeout)
			}
		}
		if text != c.want {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
		if len(got.Pod) == 1 && !complete(c.said) {
			t.Errorf("%s: the pod tracks it", name)
		}
	}
}

// TestPack: unpack returns what was packed; invalid or unlimited input is an error.
func TestPack(t *testing.T) {
	all := connections{Host: []state.ConntrackEntry{udp("10.2.0.9:4", "10.1.0.5:80", "10.1.0.5:80", "10.2.0.9:4")}}
	b, err := all.pack()
	if err != nil {
		t.Fatal(err)
	}
	got, err := unpack(b)
	if err != nil || len(got.Host) != 1 || !got.Host[0].Same(all.Host[0]) {
		t.Errorf("%+v %v", got, err)
	}
	zipped := func(text string) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(text))
		_ = z.Close()
		return b.Bytes()
	}
	empty := func(n int) string { return `{"pod":[` + strings.Repeat("{},", n-1) + "{}]}" }
	if most, err := unpack(zipped(empty(mostConnections))); err != nil || len(most.Pod) != mostConnections {
		t.Errorf("%d of as many as there can be: %v", len(most.Pod), err)
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "words": []byte("words"), "a part": b[:len(b)/2], "no list": zipped(`{"host":{}}`),
		"too much": zipped(strings.Repeat("[", mostUnpacked+1)), "too many": zipped(empty(mostConnections + 1)),
	} {
		if _, err := unpack(b); err == nil || !strings.HasPrefix(err.Error(), "connections: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestKnows: only packets of imported connections show that a VM is here that was never here before.
func TestKnows(t *testing.T) {
	f := &vmFollower{}
	set := connections{Host: []state.ConntrackEntry{udp("10.2.0.9:4", "10.1.0.5:80", "10.1.0.5:80", "10.2.0.9:4")}}
	says := func(from, to string) watch.HeardAnnouncement {
		return watch.HeardAnnouncement{How: "ip", Proto: 17, From: netip.MustParseAddrPort(from), To: netip.MustParseAddrPort(to)}
	}
	if f.knows(says("10.1.0.5:80", "10.2.0.9:4")) {
		t.Error("known before anything is")
	}
	f.known.Store(set.tuples())
	if !f.knows(says("10.1.0.5:80", "10.2.0.9:4")) || f.knows(says("10.1.0.5:81", "10.2.0.9:4")) ||
		f.knows(watch.HeardAnnouncement{How: "ip"}) {
		t.Error("known are others than those that were brought")
	}
}

// TestKnowsTranslated: if its pod translates a VM's addresses, the node may track nothing; then the pod's conntrack
// entries show that the VM is here, too, by its packets as they leave the pod.
func TestKnowsTranslated(t *testing.T) {
	f := &vmFollower{}
	f.known.Store(connections{Pod: []state.ConntrackEntry{
		udp("10.2.0.9:4", "10.1.0.5:80", "10.0.2.2:80", "10.2.0.9:4"), // opened by a peer
		udp("10.0.2.2:5", "10.2.0.9:53", "10.2.0.9:53", "10.1.0.5:6"), // opened by the VM
	}}.tuples())
	says := func(from, to string) watch.HeardAnnouncement {
		return watch.HeardAnnouncement{How: "ip", Proto: 17, From: netip.MustParseAddrPort(from), To: netip.MustParseAddrPort(to)}
	}
	for from, to := range map[string]string{"10.1.0.5:80": "10.2.0.9:4", "10.1.0.5:6": "10.2.0.9:53"} {
		if !f.knows(says(from, to)) {
			t.Errorf("a packet from %s to %s says nothing", from, to)
		}
	}
	if f.knows(says("10.1.0.5:81", "10.2.0.9:4")) {
		t.Error("known are others than those that were brought")
	}
}
