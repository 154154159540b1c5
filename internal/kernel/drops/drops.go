// SPDX-License-Identifier: Apache-2.0

// Package drops reports packets that the kernel drops, in all namespaces, with its reason: by a program on the tracepoint
// kfree_skb, which exists as long as a Session. Reasons and the places of fields are read from the kernel's BTF.
package drops

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/weft-net/weft/internal/kernel/bpfcode"
)

// Drop is a packet that was dropped.
type Drop struct {
	// Reason is the kernel's name without its prefix: "IP_RPFILTER", "NO_SOCKET". Function is where it was dropped; empty
	// if the kernel hides its symbols.
	Reason   string `json:"reason"`
	Function string `json:"function,omitempty"`
	// Interface is where the packet was, and Namespace the inode of its network namespace; empty if it was at none.
	Interface string `json:"interface,omitempty"`
	Namespace uint64 `json:"namespace,omitempty"`
	// Mark is the packet's mark.
	Mark uint32 `json:"mark,omitempty"`
	// Packet are its first bytes, from the IP header.
	Packet []byte `json:"-"`

	location uint64
}

const (
	name     = "weft_drops"
	ringSize = 256 << 10 // bytes
	most     = 1000      // drops that are kept
)

// Session watches drops.
type Session struct {
	reasons map[uint32]string
	keep    func(packet []byte) bool
	each    func(Drop) // nil: drops are kept
	missed  *ebpf.Map
	reader  *ringbuf.Reader
	closers []func() error
	done    chan struct{}

	mu   sync.Mutex
	seen []Drop
	lost bool
}

// Start loads the program. Drops are kept of which keep reports true, by the packet's first bytes from its IP header; nil
// keeps all. An error is about what the kernel lacks.
func Start(f Filter, keep func(packet []byte) bool) (*Session, error) {
	return start(&Session{keep: keep, done: make(chan struct{})}, f)
}

// Stream is Start, but each drop is passed to a function, which is called from one goroutine, and none is kept. Its
// Function is not known.
func Stream(f Filter, each func(Drop)) (*Session, error) {
	return start(&Session{each: each, done: make(chan struct{})}, f)
}

func start(s *Session, f Filter) (_ *Session, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	layout, err := bpfcode.ReadLayout("")
	if err != nil {
		return s, err
	}
	if s.reasons, err = readReasons(layout); err != nil {
		return s, err
	}
	o, err := readOffsets(layout)
	if err != nil {
		return s, err
	}
	ring, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.RingBuf, MaxEntries: ringSize})
	if err != nil {
		return s, fmt.Errorf("eBPF ring buffer: %w", err)
	}
	s.closers = append(s.closers, ring.Close)
	s.missed, err = ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return s, fmt.Errorf("eBPF array: %w", err)
	}
	s.closers = append(s.closers, s.missed.Close)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.RawTracepoint, License: bpfcode.License, Instructions: code(o, f, s.numbers(f.Reasons), ring.FD(), s.missed.FD()),
	})
	if err != nil {
		return s, fmt.Errorf("eBPF program (CAP_BPF and CAP_PERFMON): %w", err)
	}
	s.closers = append(s.closers, program.Close)
	if s.reader, err = ringbuf.NewReader(ring); err != nil {
		return s, fmt.Errorf("eBPF ring buffer: %w", err)
	}
	s.closers = append(s.closers, s.reader.Close)
	attached, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "kfree_skb", Program: program})
	if err != nil {
		return s, fmt.Errorf("tracepoint kfree_skb: %w", err)
	}
	s.closers = append(s.closers, attached.Close)
	go s.receive(s.reader)
	return s, nil
}

// readReasons reads the names of reasons.
func readReasons(l *bpfcode.Layout) (map[uint32]string, error) {
	var reasons *btf.Enum
	if err := l.Find("skb_drop_reason", &reasons); err != nil {
		return nil, fmt.Errorf("the kernel has no drop reasons (Linux 5.17): %w", err)
	}
	out := map[uint32]string{}
	for _, v := range reasons.Values {
		n := strings.TrimPrefix(strings.TrimPrefix(v.Name, "SKB_DROP_REASON_"), "SKB_")
		out[uint32(v.Value)] = n
	}
	return out, nil
}

// numbers returns the numbers of reasons, without those that the kernel does not have.
func (s *Session) numbers(names []string) (out []uint32) {
	for number, name := range s.reasons {
		if slices.Contains(names, name) {
			out = append(out, number)
		}
	}
	return out
}

// Idle reports whether no drop waits to be received. The last one may still be in the callback.
func (s *Session) Idle() bool { return s.reader.AvailableBytes() == 0 }

// Missed returns how many drops were not reported because the ring was full.
func (s *Session) Missed() (n uint64, err error) {
	if err := s.missed.Lookup(uint32(0), &n); err != nil {
		return 0, fmt.Errorf("drops that were not reported: %w", err)
	}
	return n, nil
}

// Close removes the program.
func (s *Session) Close() error {
	err := s.close()
	<-s.done
	return err
}

func (s *Session) close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}

func (s *Session) receive(r *ringbuf.Reader) {
	defer close(s.done)
	for {
		record, err := r.Read()
		if err != nil {
			return // closed
		}
		d, ok := s.decode(record.RawSample)
		if s.each != nil {
			if ok {
				s.each(d)
			}
			continue
		}
		s.mu.Lock()
		switch {
		case !ok || s.keep != nil && !s.keep(d.Packet):
		case len(s.seen) >= most:
			s.lost = true
		default:
			s.seen = append(s.seen, d)
		}
		s.mu.Unlock()
	}
}

// decode decodes a record.
func (s *Session) decode(b []byte) (d Drop, ok bool) {
	if len(b) < recordSize {
		return d, false
	}
	reason := binary.NativeEndian.Uint32(b[atReason:])
	d = Drop{
		Reason:    s.reasons[reason],
		Interface: string(bytes.TrimRight(b[atName:atName+16], "\x00")),
		Namespace: uint64(binary.NativeEndian.Uint32(b[atNamespace:])),
		Mark:      binary.NativeEndian.Uint32(b[atMark:]),
		Packet:    bytes.Clone(b[atPacket : atPacket+packetSize]),
		location:  binary.NativeEndian.Uint64(b[atLocation:]),
	}
	if d.Reason == "" { // of a subsystem, or newer than the kernel's BTF
		d.Reason = fmt.Sprintf("reason %#x", reason)
	}
	return d, true
}

// Seen returns the drops so far. lost means that some are missing.
func (s *Session) Seen() (seen []Drop, lost bool, err error) {
	s.mu.Lock()
	seen, lost = append([]Drop(nil), s.seen...), s.lost
	s.mu.Unlock()
	if len(seen) == 0 {
		return seen, lost, nil
	}
	return seen, lost, addFunctions(seen)
}

// addFunctions finds the functions of drops in the list of the kernel's symbols.
func addFunctions(all []Drop) error {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return fmt.Errorf("symbols of the kernel: %w", err)
	}
	defer func() { _ = f.Close() }()
	begins := make([]uint64, len(all))
	for lines := bufio.NewScanner(f); lines.Scan(); {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		at, err := strconv.ParseUint(word, 16, 64)
		if err != nil || at == 0 || len(rest) < 3 {
			continue
		}
		for i := range all {
			if at <= all[i].location && at > begins[i] {
				symbol, _, _ := strings.Cut(rest[2:], "\t") // the module
				begins[i], all[i].Function = at, symbol
			}
		}
	}
	return nil
}
