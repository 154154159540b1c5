// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// Limits of a move: it must fit into the datastore, and what another node wrote must fit into memory.
const (
	mostConnections = 16384
	mostPacked      = 700 << 10 // an object in etcd has at most 1.5 MB, of which Base64 takes a quarter
	mostUnpacked    = 16 << 20
)

// connections are a VM's conntrack entries on the node and in its pod, which translates the addresses of some.
type connections struct {
	Host []state.ConntrackEntry `json:"host,omitempty"`
	Pod  []state.ConntrackEntry `json:"pod,omitempty"`
}

// copied is the set of a VM's connections that was last written to a move, the time, and the version of the move that
// was last read.
type copied struct {
	set     connections
	at      time.Time
	version string
	// reported: the omitted ones of this migration were reported.
	reported bool
}

// collect reads the VM's connections.
func (f *vmFollower) collect(rec attach.Record) (connections, error) {
	var out connections
	var err error
	lives := func(c state.ConntrackEntry) bool { return c.TCP == nil || c.TCP.State > 0 && c.TCP.State < tcpTimeWait }
	concerns := func(c state.Connection) bool { return slices.ContainsFunc(f.addrs, c.HasAddr) }
	if out.Host, err = f.m.cfg.Host.ListConntrackOf(f.addrs); err != nil {
		return out, err
	}
	// After the VM has left, replies to its packets still arrive here for a while. Out-of-window packets would not be
	// translated, and the pod itself would refuse them.
	err = inPod(rec, func(c *kernel.Conn) (err error) {
		if out.Pod, err = c.ListConntrack(concerns); err == nil {
			err = c.SetTCPLiberal(out.Pod)
		}
		return err
	})
	for _, all := range []*[]state.ConntrackEntry{&out.Host, &out.Pod} {
		*all = slices.DeleteFunc(*all, func(c state.ConntrackEntry) bool { return !lives(c) })
		slices.SortFunc(*all, func(a, b state.ConntrackEntry) int {
			return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Proto, b.Proto), a.Src.Compare(b.Src), a.Dst.Compare(b.Dst))
		})
	}
	return out, err
}

// The kernel's numbers of conntrack states: that of an established connection, and the first one of a closed one.
const tcpEstablished, tcpTimeWait = 3, 7

// rank orders connections by what is lost with one: an established one of TCP ends, one that opens is tried again, and others
// begin again with the next packet.
func rank(c state.ConntrackEntry) int {
	switch {
	case c.TCP == nil:
		return 2
	case c.TCP.State == tcpEstablished:
		return 0
	}
	return 1
}

// inPod calls do in the record's network namespace, if that still exists.
func inPod(rec attach.Record, do func(*kernel.Conn) error) error {
	ns, err := netns.Open(rec.Request.Netns)
	if err != nil {
		return nil //nolint:nilerr // the namespace is gone, and its connections with it
	}
	defer func() { _ = ns.Close() }()
	if id, err := ns.ID(); err != nil || id != rec.NetnsID {
		return nil //nolint:nilerr // the namespace was replaced
	}
	c, err := kernel.Dial(ns)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return do(c)
}

// pack encodes as many of the connections, in their order, as a move can have, and returns the number of the others.
func (c connections) pack() (packed []byte, omitted int, err error) {
	for most := mostConnections; ; most -= most / 4 {
		part := connections{Host: c.Host[:min(len(c.Host), most)], Pod: c.Pod[:min(len(c.Pod), most)]}
		if packed, err = part.encode(); err != nil || len(packed) <= mostPacked {
			return packed, max(len(c.Host)-len(part.Host), len(c.Pod)-len(part.Pod)), err // the pod's are the node's
		}
	}
}

func (c connections) encode() ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := json.NewEncoder(z).Encode(c); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func unpack(b []byte) (connections, error) {
	var out connections
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return out, fmt.Errorf("connections: %w", err)
	}
	var said struct{ Host, Pod bounded }
	if err := json.NewDecoder(io.LimitReader(z, mostUnpacked)).Decode(&said); err != nil {
		return out, fmt.Errorf("connections: %w", err)
	}
	return connections{Host: said.Host, Pod: said.Pod}, nil
}

// bounded is a list of connections whose length is limited while it is decoded: in memory each takes a hundred times
// the size of an empty one in JSON.
type bounded []state.ConntrackEntry

// UnmarshalJSON decodes one element after the other.
func (b *bounded) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if begin, err := d.Token(); err != nil || begin != json.Delim('[') {
		return errors.Join(errors.New("not a list"), err)
	}
	for d.More() {
		if len(*b) == mostConnections {
			return fmt.Errorf("more than %d", mostConnections)
		}
		var one state.ConntrackEntry
		if err := d.Decode(&one); err != nil {
			return err
		}
		*b = append(*b, one)
	}
	return nil
}

// same reports whether another set is the one that was handed over.
func (c copied) same(o connections) bool {
	return !c.at.IsZero() && slices.EqualFunc(c.set.Host, o.Host, state.ConntrackEntry.Same) &&
		slices.EqualFunc(c.set.Pod, o.Pod, state.ConntrackEntry.Same)
}

// importPhase is a phase of importing connections: before the VM is here their timeouts are short; at the switch they get
// their timeouts of the source node; after it, new ones are added.
type importPhase int

const (
	beforeSwitch importPhase = iota
	atSwitch
	afterSwitch
)

// importConnections adds the move's connections to the conntrack tables of this node and of the pod.
func (f *vmFollower) importConnections(when importPhase) {
	o, move, is := f.m.of(f.move)
	if !is || len(move.Connections) == 0 || o.Version == f.copied.version && when != atSwitch {
		return
	}
	set, err := unpack(move.Connections)
	if err != nil {
		f.m.cfg.Log.Warn("connections of a VM could not be read from its move", "vm", f.vm.String(), "err", err)
		return
	}
	set = f.here(set)
	f.copied.version = o.Version
	f.known.Store(set.tuples())
	if when == beforeSwitch {
		set = set.brief()
	}
	if err := f.m.cfg.Host.InsertConntrack(set.Host, when != afterSwitch); err != nil {
		f.m.cfg.Log.Warn(
			"some connections of a VM could not be added to the node's conntrack table",
			"vm",
			f.vm.String(),
			"err",
			err,
		)
	}
	rec, found, err := f.m.cfg.Records.Get(f.key)
	if err != nil || !found || len(set.Pod) == 0 {
		return
	}
	if err := inPod(
		rec,
		func(c *kernel.Conn) error { return c.InsertConntrack(set.Pod, when != afterSwitch) },
	); err != nil {
		f.m.cfg.Log.Warn(
			"some connections of a VM could not be added to the pod's conntrack table",
			"vm",
			f.vm.String(),
			"err",
			err,
		)
	}
}

// here returns the connections as this node has to track them. Of those that the source node has translated, only a
// part applies here: a connection that the VM opened keeps the translation of its destination, but not the source
// node's address; one to the VM is translated before it gets here.
func (f *vmFollower) here(c connections) connections {
	var out connections
	for _, t := range c.Host {
		switch {
		case !complete(t):
			continue
		case f.own(t.Src.Addr()):
			if t.ReplyDst != t.Src {
				continue
			}
		case f.own(t.ReplySrc.Addr()):
			t.Src, t.Dst = t.ReplyDst, t.ReplySrc
		default:
			continue // another VM's
		}
		out.Host = append(out.Host, t)
	}
	for _, t := range c.Pod {
		if complete(t) && slices.ContainsFunc(f.addrs, t.HasAddr) {
			out.Pod = append(out.Pod, t)
		}
	}
	return out
}

// complete reports whether a connection has all its addresses, of one family.
func complete(t state.ConntrackEntry) bool {
	for _, end := range []netip.AddrPort{t.Src, t.Dst, t.ReplySrc, t.ReplyDst} {
		if !end.IsValid() || end.Addr().Is6() != t.Src.Addr().Is6() || end.Addr().Is4In6() || end.Addr().Zone() != "" {
			return false
		}
	}
	return (t.Proto == unix.IPPROTO_TCP) == (t.TCP != nil) && (t.TCP != nil || t.Proto == unix.IPPROTO_UDP)
}

// brief returns the connections with short timeouts.
func (c connections) brief() connections {
	shortened := func(all []state.ConntrackEntry) []state.ConntrackEntry {
		all = slices.Clone(all)
		for i := range all {
			all[i].Timeout = min(all[i].Timeout, uint32(copyTime/time.Second))
		}
		return all
	}
	return connections{Host: shortened(c.Host), Pod: shortened(c.Pod)}
}

// tuple is the protocol and the addresses of a packet.
type tuple struct {
	proto    uint8
	from, to netip.AddrPort
}

// tuples returns the tuples of the VM's packets. A node that tracks nothing for the VM only knows what the pod has
// translated.
func (c connections) tuples() *map[tuple]bool {
	out := map[tuple]bool{}
	for _, t := range c.Host {
		out[tuple{t.Proto, t.Src, t.Dst}] = true
		out[tuple{t.Proto, t.ReplySrc, t.ReplyDst}] = true
	}
	for _, t := range c.Pod { // as they leave the pod: to the opener of the connection, or to the responder
		out[tuple{t.Proto, t.Dst, t.Src}] = true
		out[tuple{t.Proto, t.ReplyDst, t.ReplySrc}] = true
	}
	return &out
}

// knows reports whether a packet belongs to an imported connection.
func (f *vmFollower) knows(s watch.HeardAnnouncement) bool {
	known := f.known.Load()
	return known != nil && s.Proto != 0 && (*known)[tuple{s.Proto, s.From, s.To}]
}
