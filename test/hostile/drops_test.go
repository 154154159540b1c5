// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
)

// drops hears of each packet that the kernel drops, in whatever namespace, and why: by the tracepoint skb:kfree_skb.
// Counters would not do: some drops are not counted, others are counted for all namespaces at once, and none says of
// which packet it speaks.
type drops struct {
	ears    *ears // which know a word
	reasons map[uint32]string
	symbols []symbol

	mu  sync.Mutex
	why map[int]map[string]bool // by word
}

// symbol is a function of the kernel.
type symbol struct {
	at   uint64
	name string
}

// What is heard of a packet: the reason, the length of what follows, where in the kernel it was dropped, and its
// beginning.
const (
	dropHead  = 16
	dropBytes = 320
)

// hearDrops begins to hear; it ends with the test.
func hearDrops(t testing.TB, e *ears) *drops {
	t.Helper()
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatalf("the kernel does not say what it drops: it needs CONFIG_DEBUG_INFO_BTF and CONFIG_BPF_EVENTS: %v", err)
	}
	d := &drops{ears: e, reasons: map[uint32]string{}, why: map[int]map[string]bool{}}
	var reasons *btf.Enum
	if err := kernel.TypeByName("skb_drop_reason", &reasons); err != nil {
		t.Fatal(err)
	}
	for _, v := range reasons.Values {
		d.reasons[uint32(v.Value)] = strings.TrimPrefix(v.Name, "SKB_DROP_REASON_")
	}
	if d.symbols, err = symbols(); err != nil {
		t.Fatal(err)
	}
	events, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = events.Close() })
	code, err := dropProgram(kernel, events)
	if err != nil {
		t.Fatal(err)
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: code})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { _ = program.Close() })
	at, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "kfree_skb", Program: program})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = at.Close() })
	r, err := ringbuf.NewReader(events)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = r.Close(); <-done })
	go func() {
		defer close(done)
		var rec ringbuf.Record
		for r.ReadInto(&rec) == nil {
			d.note(rec.RawSample)
		}
	}()
	return d
}

func (d *drops) note(event []byte) {
	if len(event) < dropHead {
		return
	}
	n := min(int(binary.NativeEndian.Uint32(event[4:])), len(event)-dropHead)
	words := d.ears.words.FindAllSubmatch(event[dropHead:dropHead+n], -1)
	if len(words) == 0 {
		return
	}
	reason, known := d.reasons[binary.NativeEndian.Uint32(event)]
	if !known || reason == "NOT_SPECIFIED" {
		reason = d.function(binary.NativeEndian.Uint64(event[8:]))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range words {
		number := numberOf(m[1])
		if d.why[number] == nil {
			d.why[number] = map[string]bool{}
		}
		d.why[number][reason] = true
	}
}

// of returns why a word was dropped, as the kernel says it; none: it was not.
func (d *drops) of(word int) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.why[word]))
}

// function is the one that contains an address.
func (d *drops) function(at uint64) string {
	i, found := slices.BinarySearchFunc(d.symbols, at, func(s symbol, at uint64) int { return cmp.Compare(s.at, at) })
	if !found {
		i--
	}
	if i < 0 || i >= len(d.symbols) {
		return fmt.Sprintf("%#x", at)
	}
	return d.symbols[i].name
}

func symbols() ([]symbol, error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var out []symbol
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		part := strings.Fields(lines.Text())
		if len(part) < 3 || !strings.EqualFold(part[1], "t") {
			continue
		}
		at, err := strconv.ParseUint(part[0], 16, 64)
		if err != nil {
			return nil, err
		}
		out = append(out, symbol{at, part[2]})
	}
	slices.SortFunc(out, func(a, b symbol) int { return cmp.Compare(a.at, b.at) })
	return out, lines.Err()
}

// dropProgram copies the beginning of each packet that is dropped, from its Ethernet header on where it has one.
func dropProgram(kernel *btf.Spec, events *ebpf.Map) (asm.Instructions, error) {
	var skb *btf.Struct
	if err := kernel.TypeByName("sk_buff", &skb); err != nil {
		return nil, err
	}
	var offsets [4]int32
	for i, name := range []string{"head", "data", "tail", "mac_header"} {
		at, found := offset(skb.Members, name)
		if !found {
			return nil, fmt.Errorf("the kernel's struct sk_buff has no %s", name)
		}
		offsets[i] = int32(at)
	}
	// Where on the stack they are.
	const head, data, tail, mac = -8, -16, -24, -32
	read := func(at int16, size int32, field int) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Imm(asm.R1, 0), asm.StoreMem(asm.R10, at, asm.R1, asm.DWord),
			asm.Mov.Reg(asm.R1, asm.R10), asm.Add.Imm(asm.R1, int32(at)), asm.Mov.Imm(asm.R2, size),
			asm.Mov.Reg(asm.R3, asm.R7), asm.Add.Imm(asm.R3, offsets[field]), asm.FnProbeReadKernel.Call(),
		}
	}
	return slices.Concat(
		asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1), asm.LoadMem(asm.R7, asm.R6, 0, asm.DWord)},
		read(head, 8, 0), read(data, 8, 1), read(tail, 4, 2), read(mac, 2, 3),
		asm.Instructions{
			// r8: where it begins, r9: how much of it there is
			asm.LoadMem(asm.R1, asm.R10, head, asm.DWord), asm.LoadMem(asm.R8, asm.R10, mac, asm.DWord),
			asm.JNE.Imm(asm.R8, 0xffff, "begins"),
			asm.LoadMem(asm.R8, asm.R10, data, asm.DWord), asm.Sub.Reg(asm.R8, asm.R1),
			asm.LoadMem(asm.R9, asm.R10, tail, asm.DWord).WithSymbol("begins"),
			asm.JGE.Reg(asm.R8, asm.R9, "end"),
			asm.Sub.Reg(asm.R9, asm.R8), asm.Add.Reg(asm.R8, asm.R1),
			asm.JLE.Imm(asm.R9, dropBytes, "fits"), asm.Mov.Imm(asm.R9, dropBytes),
			asm.LoadMapPtr(asm.R1, events.FD()).WithSymbol("fits"), asm.Mov.Imm(asm.R2, dropHead+dropBytes),
			asm.Mov.Imm(asm.R3, 0), asm.FnRingbufReserve.Call(),
			asm.JEq.Imm(asm.R0, 0, "end"),
			asm.LoadMem(asm.R1, asm.R6, 16, asm.DWord), asm.StoreMem(asm.R0, 0, asm.R1, asm.Word),
			asm.StoreMem(asm.R0, 4, asm.R9, asm.Word),
			asm.LoadMem(asm.R1, asm.R6, 8, asm.DWord), asm.StoreMem(asm.R0, 8, asm.R1, asm.DWord),
			asm.Mov.Reg(asm.R7, asm.R0),
			asm.Mov.Reg(asm.R1, asm.R0), asm.Add.Imm(asm.R1, dropHead), asm.Mov.Reg(asm.R2, asm.R9),
			asm.Mov.Reg(asm.R3, asm.R8), asm.FnProbeReadKernel.Call(),
			asm.Mov.Reg(asm.R1, asm.R7), asm.Mov.Imm(asm.R2, 0), asm.FnRingbufSubmit.Call(),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("end"), asm.Return(),
		},
	), nil
}

// offset is where a field is, in bytes, also in structs and unions without a name.
func offset(members []btf.Member, name string) (uint32, bool) {
	for _, m := range members {
		if m.Name == name {
			return m.Offset.Bytes(), true
		}
		if m.Name != "" {
			continue
		}
		var inner []btf.Member
		switch t := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			inner = t.Members
		case *btf.Union:
			inner = t.Members
		}
		if at, found := offset(inner, name); found {
			return m.Offset.Bytes() + at, true
		}
	}
	return 0, false
}
