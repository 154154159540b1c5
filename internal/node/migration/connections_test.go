// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"bytes"
	"compress/gzip"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/model"
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
	b, omitted, err := all.pack()
	if err != nil || omitted != 0 {
		t.Fatal(omitted, err)
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

// TestPackMany: of more connections than an object can have, those are packed that come first, and the others are counted.
func TestPackMany(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var all connections
	for range 20000 {
		var client [16]byte
		for i := range client {
			client[i] = byte(random.Uint32())
		}
		client[0] = 0xfd
		from := netip.AddrPortFrom(netip.AddrFrom16(client), uint16(random.Uint32())|1).String()
		all.Host = append(all.Host, udp(from, "[fd00::5]:80", "[fd00::5]:80", from))
		all.Pod = append(all.Pod, udp(from, "[fd00::5]:80", "[fd10::2]:80", from))
	}
	b, omitted, err := all.pack()
	if err != nil || len(b) > mostPacked {
		t.Fatalf("%d bytes: %v", len(b), err)
	}
	got, err := unpack(b)
	if err != nil || len(got.Host) != len(all.Host)-omitted || len(got.Host) != len(got.Pod) || len(got.Host) < 8192 {
		t.Fatalf("%d and %d connections, %d omitted: %v", len(got.Host), len(got.Pod), omitted, err)
	}
	for i := range got.Host {
		if !got.Host[i].Same(all.Host[i]) || !got.Pod[i].Same(all.Pod[i]) {
			t.Fatalf("connection %d is %+v, want %+v", i, got.Host[i], all.Host[i])
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

// TestReportOmitted: what a migration cannot transfer is an event on the VM's pod, by its number.
func TestReportOmitted(t *testing.T) {
	var pod model.PodRef
	var event model.Event
	f := &vmFollower{vm: model.VMRef{Namespace: "shop", Name: "db"}, m: New(Config{
		Log: slog.New(slog.DiscardHandler), Event: func(p model.PodRef, e model.Event) { pod, event = p, e },
	})}
	f.reportOmitted(attach.Record{Request: model.Request{Args: [][2]string{
		{"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", "virt-launcher-db"},
	}}}, 77)
	if pod.String() != "shop/virt-launcher-db" || !event.Warning || event.Reason != "ConnectionsNotTransferred" ||
		!strings.HasPrefix(event.Message, "VM shop/db has 77 connections more") {
		t.Errorf("%s: %+v", pod, event)
	}
}

// TestRank: established connections of TCP are the first that are transferred, those that begin again by themselves the last.
func TestRank(t *testing.T) {
	tcp := func(s uint8) state.ConntrackEntry { return state.ConntrackEntry{TCP: &state.ConntrackTCP{State: s}} }
	if a, b, c := rank(tcp(tcpEstablished)), rank(tcp(1)), rank(state.ConntrackEntry{}); a >= b || b >= c {
		t.Errorf("established %d, opening %d, UDP %d", a, b, c)
	}
}
