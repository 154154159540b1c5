// SPDX-License-Identifier: Apache-2.0

package move

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

// Bounds of what is handed over: a move must find room in the store, and what another node wrote in memory.
const (
	mostConnections = 4096
	mostUnpacked    = 8 << 20
)

// connections are those of a machine, as the node tracks them and as its pod does, which translates the addresses of
// some.
type connections struct {
	Host []state.Tracked `json:"host,omitempty"`
	Pod  []state.Tracked `json:"pod,omitempty"`
}

// copied is what of a machine's connections went to another node, and when; and which word of another node was heard
// last.
type copied struct {
	set     connections
	at      time.Time
	version string
}

// collect reads the machine's connections.
func (f *follower) collect(rec attach.Record) (connections, error) {
	var out connections
	var err error
	lives := func(c state.Tracked) bool { return c.TCP == nil || c.TCP.State > 0 && c.TCP.State < tcpTimeWait }
	concerns := func(c state.Connection) bool { return slices.ContainsFunc(f.addrs, c.Concerns) }
	if out.Host, err = f.m.cfg.Host.Tracked(concerns); err != nil {
		return out, err
	}
	// When the machine has gone, packets that answer what it said there still come here for a while. What is out of the
	// window would not be translated, and the pod itself would refuse it.
	err = inPod(rec, func(c *kernel.Conn) (err error) {
		if out.Pod, err = c.Tracked(concerns); err == nil {
			err = c.Loosen(out.Pod)
		}
		return err
	})
	for _, all := range []*[]state.Tracked{&out.Host, &out.Pod} {
		*all = slices.DeleteFunc(*all, func(c state.Tracked) bool { return !lives(c) })
		slices.SortFunc(*all, func(a, b state.Tracked) int {
			return cmp.Or(cmp.Compare(a.Proto, b.Proto), a.From.Compare(b.From), a.To.Compare(b.To))
		})
		*all = (*all)[:min(len(*all), mostConnections)]
	}
	return out, err
}

// tcpTimeWait is the kernel's number of the first state in which a connection is over.
const tcpTimeWait = 7

// inPod does something in the record's container, if that is still there.
func inPod(rec attach.Record, do func(*kernel.Conn) error) error {
	ns, err := netns.Open(rec.Request.Netns)
	if err != nil {
		return nil //nolint:nilerr // it is gone, and its connections with it
	}
	defer func() { _ = ns.Close() }()
	if id, err := ns.ID(); err != nil || id != rec.NetnsID {
		return nil //nolint:nilerr // another one has its name
	}
	c, err := kernel.Dial(ns)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return do(c)
}

func (c connections) pack() ([]byte, error) {
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

// bounded is a list of connections that is not read beyond what anybody hands over: each of them takes a hundred times
// the room that an empty one has in the text.
type bounded []state.Tracked

// UnmarshalJSON reads one after the other.
func (b *bounded) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if begin, err := d.Token(); err != nil || begin != json.Delim('[') {
		return errors.Join(errors.New("no list"), err)
	}
	for d.More() {
		if len(*b) == mostConnections {
			return fmt.Errorf("more than %d", mostConnections)
		}
		var one state.Tracked
		if err := d.Decode(&one); err != nil {
			return err
		}
		*b = append(*b, one)
	}
	return nil
}

// same tells whether another set is the one that was handed over.
func (c copied) same(o connections) bool {
	return !c.at.IsZero() && slices.EqualFunc(c.set.Host, o.Host, state.Tracked.Same) &&
		slices.EqualFunc(c.set.Pod, o.Pod, state.Tracked.Same)
}

// How connections are brought: while the machine is elsewhere they are soon forgotten again; when it comes, they are
// kept as long as they were there; and behind it, those that are new are added.
type bringing int

const (
	early bringing = iota
	atLast
	behind
)

// bring has this node and its pod track what the move says.
func (f *follower) bring(when bringing) {
	o, move, is := f.m.of(f.move)
	if !is || len(move.Connections) == 0 || o.Version == f.copied.version && when != atLast {
		return
	}
	set, err := unpack(move.Connections)
	if err != nil {
		f.m.cfg.Log.Warn("machine's connections cannot be read", "machine", f.vm.String(), "err", err)
		return
	}
	set = f.here(set)
	f.copied.version = o.Version
	f.known.Store(set.tuples())
	if when == early {
		set = set.brief()
	}
	if err := f.m.cfg.Host.Track(set.Host, when != behind); err != nil {
		f.m.cfg.Log.Warn("some of the machine's connections are new to policies", "machine", f.vm.String(), "err", err)
	}
	rec, found, err := f.m.cfg.Records.Get(f.key)
	if err != nil || !found || len(set.Pod) == 0 {
		return
	}
	if err := inPod(rec, func(c *kernel.Conn) error { return c.Track(set.Pod, when != behind) }); err != nil {
		f.m.cfg.Log.Warn("some of the machine's connections are new to its pod", "machine", f.vm.String(), "err", err)
	}
}

// here are the connections as this node is to track them. Of those that another node has translated only what goes on
// here: what began at the machine keeps the translation of whom it spoke to, but cannot keep the other node's address;
// what leads to the machine has been translated before it comes here.
func (f *follower) here(c connections) connections {
	var out connections
	for _, t := range c.Host {
		switch {
		case !whole(t):
			continue
		case f.own(t.From.Addr()):
			if t.Back != t.From {
				continue
			}
		case f.own(t.Answers.Addr()):
			t.From, t.To = t.Back, t.Answers
		default:
			continue // another machine's
		}
		out.Host = append(out.Host, t)
	}
	for _, t := range c.Pod {
		if whole(t) && slices.ContainsFunc(f.addrs, t.Concerns) {
			out.Pod = append(out.Pod, t)
		}
	}
	return out
}

// whole tells whether a connection has all its ends, of one family.
func whole(t state.Tracked) bool {
	for _, end := range []netip.AddrPort{t.From, t.To, t.Answers, t.Back} {
		if !end.IsValid() || end.Addr().Is6() != t.From.Addr().Is6() || end.Addr().Is4In6() || end.Addr().Zone() != "" {
			return false
		}
	}
	return (t.Proto == unix.IPPROTO_TCP) == (t.TCP != nil) && (t.TCP != nil || t.Proto == unix.IPPROTO_UDP)
}

// brief are the connections with times that are soon over.
func (c connections) brief() connections {
	shortened := func(all []state.Tracked) []state.Tracked {
		all = slices.Clone(all)
		for i := range all {
			all[i].Timeout = min(all[i].Timeout, uint32(copyTime/time.Second))
		}
		return all
	}
	return connections{Host: shortened(c.Host), Pod: shortened(c.Pod)}
}

// tuple is a packet's.
type tuple struct {
	proto    uint8
	from, to netip.AddrPort
}

// tuples are those of the packets of the connections that come from the machine. A node that needs to track nothing
// knows only what the pod has translated.
func (c connections) tuples() *map[tuple]bool {
	out := map[tuple]bool{}
	for _, t := range c.Host {
		out[tuple{t.Proto, t.From, t.To}] = true
		out[tuple{t.Proto, t.Answers, t.Back}] = true
	}
	for _, t := range c.Pod { // as they leave the pod: against who began them, or against who answers
		out[tuple{t.Proto, t.To, t.From}] = true
		out[tuple{t.Proto, t.Back, t.Answers}] = true
	}
	return &out
}

// knows tells whether a packet is of a connection that was brought along.
func (f *follower) knows(s watch.Speech) bool {
	known := f.known.Load()
	return known != nil && s.Proto != 0 && (*known)[tuple{s.Proto, s.From, s.To}]
}
