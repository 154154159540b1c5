// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/bpfcode"
	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/netns"
)

// ringSize is the size of the ring in bytes, a power of two: 14,000 events wait for a slow reader.
const ringSize = 2 << 20

// mapName is the name of maps and programs.
const mapName = "weft_conntrack"

// ring is the feed of eBPF programs at the functions by which connections come and go. To the connection it costs a tenth of
// an event of netlink, for which the kernel allocates and writes a message.
type ring struct {
	offsets offsets
	missed  *ebpf.Map
	fd      int
	one     ringbuf.Record

	mu      sync.Mutex // guards what follows against close
	reader  *ringbuf.Reader
	closers []func() error
}

// openRing loads and attaches the programs. An error is about what the kernel lacks, or this process may not.
func openRing(ns *netns.NS) (_ feed, err error) {
	r := &ring{}
	defer func() {
		if err != nil {
			r.close()
			err = fmt.Errorf("eBPF programs of connections: %w", err)
		}
	}()
	if ns == nil {
		if ns, err = netns.Current(); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, ns.Close()) }()
	}
	inode, err := ns.ID()
	if err != nil {
		return nil, err
	}
	if r.offsets, err = readOffsets(); err != nil {
		return nil, err
	}
	events, err := r.newMap(ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: ringSize})
	if err != nil {
		return nil, err
	}
	if r.missed, err = r.newMap(ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: recordKinds}); err != nil {
		return nil, err
	}
	entered, err := r.newMap(ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 16, MaxEntries: 1})
	if err != nil {
		return nil, err
	}
	if r.reader, err = ringbuf.NewReader(events); err != nil {
		return nil, err
	}
	r.closers, r.fd = append(r.closers, r.reader.Close), events.FD()
	r.reader.SetDeadline(time.Unix(1, 0)) // it never waits
	p := program{offsets: r.offsets, maps: maps{events.FD(), r.missed.FD(), entered.FD()}, space: uint32(inode)}
	for _, at := range []struct {
		function string
		when     ebpf.AttachType
		code     asm.Instructions
	}{
		{confirm, ebpf.AttachTraceFEntry, p.entering()}, {confirm, ebpf.AttachTraceFExit, p.confirmed()},
		{insert, ebpf.AttachTraceFExit, p.inserted()}, {destroy, ebpf.AttachTraceFEntry, p.destroyed()},
	} {
		if err := r.attach(at.function, at.when, at.code); err != nil {
			return nil, fmt.Errorf("%s (CAP_BPF and CAP_PERFMON): %w", at.function, err)
		}
	}
	return r, nil
}

func (r *ring) newMap(spec ebpf.MapSpec) (*ebpf.Map, error) {
	spec.Name = mapName
	m, err := ebpf.NewMap(&spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", spec.Type, err)
	}
	r.closers = append(r.closers, m.Close)
	return m, nil
}

func (r *ring) attach(function string, when ebpf.AttachType, code asm.Instructions) error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: mapName, Type: ebpf.Tracing, AttachType: when, AttachTo: function, License: bpfcode.License, Instructions: code,
	})
	if err != nil {
		return err
	}
	r.closers = append(r.closers, p.Close)
	attached, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		return err
	}
	r.closers = append(r.closers, attached.Close)
	return nil
}

// ends implements feed: they come with the beginnings, after their own.
func (r *ring) ends(to []Event) ([]Event, error) { return to, nil }

// next implements feed.
func (r *ring) next(begun, ended []Event) ([]Event, []Event, bool, error) {
	for range batchSize {
		err := r.reader.ReadInto(&r.one)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return begun, ended, false, nil
		}
		if err != nil {
			return begun, ended, false, fmt.Errorf("eBPF ring of connections: %w", err)
		}
		switch e := r.offsets.decode(r.one.RawSample); e.Kind {
		case New:
			begun = append(begun, e)
		case End:
			ended = append(ended, e)
		}
	}
	return begun, ended, true, nil
}

// decode decodes a record.
func (o *offsets) decode(b []byte) (e Event) {
	if len(b) < recordSize {
		return e
	}
	e.Kind = New
	if b[atKind] == recordEnd {
		e.Kind = End
	}
	orig, reply := b[atTuples:], b[atTuples+o.reply:]
	e.Proto = orig[o.protocol]
	e.Src, e.Dst = o.tuple(orig)
	e.ReplySrc, e.ReplyDst = o.tuple(reply)
	if e.Proto == unix.IPPROTO_TCP {
		e.State = stateName(b[atState])
	}
	if e.Counted = b[atCounted] != 0; e.Counted {
		count := func(i int) uint64 { return binary.NativeEndian.Uint64(b[atCounters+8*i:]) }
		e.Orig, e.Reply = Counters{count(0), count(1)}, Counters{count(2), count(3)}
	}
	return e
}

// tuple decodes a direction. Numbers of protocols without ports, such as ICMP's, are none.
func (o *offsets) tuple(b []byte) (src, dst netip.AddrPort) {
	var fromPort, toPort uint16
	switch b[o.protocol] {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_UDPLITE, unix.IPPROTO_SCTP, unix.IPPROTO_DCCP, unix.IPPROTO_GRE:
		fromPort, toPort = binary.BigEndian.Uint16(b[o.srcPort:]), binary.BigEndian.Uint16(b[o.dstPort:])
	}
	addr := func(b []byte, v4 bool) netip.Addr {
		if v4 {
			return netip.AddrFrom4([4]byte(b))
		}
		return netip.AddrFrom16([16]byte(b))
	}
	v4 := binary.NativeEndian.Uint16(b[o.family:]) == unix.AF_INET
	return netip.AddrPortFrom(addr(b[o.src:], v4), fromPort), netip.AddrPortFrom(addr(b[o.dst:], v4), toPort)
}

// descriptors implements feed.
func (r *ring) descriptors() []netlink.Descriptor { return []netlink.Descriptor{r} }

// Descriptor implements netlink.Descriptor.
func (r *ring) Descriptor() int { return r.fd }

// waits implements feed.
func (r *ring) waits() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.closers) > 0 && r.reader.AvailableBytes() > 0
}

// lost implements feed.
func (r *ring) lost(kind Kind) (n uint64, err error) {
	place := uint32(recordNew)
	if kind == End {
		place = recordEnd
	}
	return n, r.missed.Lookup(place, &n)
}

// close implements feed.
func (r *ring) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.closers) - 1; i >= 0; i-- {
		_ = r.closers[i]()
	}
	r.closers = nil
}
