// SPDX-License-Identifier: Apache-2.0

package path

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// BenchmarkRules measures the processor time of a connection between two routed pods (connect, one byte there and back, reset), of
// a byte there and back in one connection, and of a datagram. One thread is client and server, so that all the work is its own,
// and other programs' share of the processor does not count. The designs differ in what packets pass, from everything to
// nothing: "redirected" sends all packets past netfilter and the routing, and decides nothing. Medians, and those of the ratios
// of each round to the first design.
//
//	go test ./internal/bench/path -run ^$ -bench Rules -benchtime 31x
func BenchmarkRules(b *testing.B) {
	nettest.NeedBridgeNetfilter(b)
	for _, where := range []string{"same node", "across"} {
		for _, test := range []string{TestConnect, TestTCP, TestPackets} {
			b.Run(where+"/"+test, func(b *testing.B) { benchmarkRules(b, where == "across", test) })
		}
	}
}

func benchmarkRules(b *testing.B, across bool, test string) {
	b.Helper()
	dir := nettest.Programs(b)
	designs := []struct {
		name string
		world
		redirected bool
	}{
		{"policies", world{guarded: true, fast: true, policies: 1000}, false},
		{"off", world{guarded: true, policies: 1000}, false},
		{"guards", world{guarded: true, fast: true}, false},
		{"guards-off", world{guarded: true}, false},
		{"conntrack", world{fast: true}, false},
		{"routed", world{unfiltered: true, fast: true}, false},
		{"redirected", world{unfiltered: true}, true},
	}
	bench := &bench{cfg: Config{
		Self: filepath.Join(dir, "weft-bench"), BinDir: filepath.Join(dir, "cni"), Log: slog.New(slog.DiscardHandler),
	}, dir: b.TempDir()}
	once := make([]func() error, len(designs))
	for i := range designs {
		w := &designs[i].world
		w.impl, w.backend, w.plugin = "weft", "host-gw", "ptp"
		b.Cleanup(w.close)
		if err := bench.setUp(b.Context(), w); err != nil {
			b.Fatalf("%s: %v", designs[i].name, err)
		}
		from, to := w.nodes[0].pods[0], w.nodes[0].pods[1]
		if across {
			to = w.nodes[1].pods[0]
		}
		once[i] = exchanges(b, test, from.ns, to)
		if err := once[i](); err != nil { // neighbors are known
			b.Fatalf("%s: %v", designs[i].name, err)
		}
		if designs[i].redirected {
			redirectAll(b, w, across)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	took, ratios := make([][]float64, len(designs)), make([][]float64, len(designs))
	for b.Loop() {
		for _, i := range rand.Perm(len(designs)) {
			const n = 300
			began := threadTime()
			for range n {
				if err := once[i](); err != nil {
					b.Fatalf("%s: %v", designs[i].name, err)
				}
			}
			took[i] = append(took[i], float64(threadTime()-began)/n)
		}
		for i := range designs {
			last := len(took[i]) - 1
			ratios[i] = append(ratios[i], took[0][last]/took[i][last])
		}
	}
	median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
	for i, d := range designs {
		b.ReportMetric(median(took[i]), d.name+"-ns")
		b.ReportMetric(median(ratios[i]), d.name+"-gain")
	}
	b.ReportMetric(0, "ns/op")
}

// exchanges returns a function that does the unit of a test once.
func exchanges(b *testing.B, test string, from *netns.NS, to pod) func() error {
	b.Helper()
	kind := unix.SOCK_STREAM
	if test == TestPackets {
		kind = unix.SOCK_DGRAM
	}
	open := func(ns *netns.NS, f func() (int, error)) int {
		fd := -1
		if err := ns.Do(func() (err error) { fd, err = f(); return err }); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	addr := netip.AddrPortFrom(to.addr, port)
	server := open(to.ns, func() (int, error) {
		fd, err := socket(kind)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrInet4{Port: port})
		}
		if err == nil && kind == unix.SOCK_STREAM {
			err = unix.Listen(fd, 8)
		}
		return fd, err
	})
	if test == TestConnect {
		return func() error { return from.Do(func() error { return connectOnce(server, addr) }) }
	}
	client := open(from, func() (int, error) { return dial(kind, addr) })
	data := make([]byte, 18)
	if test == TestPackets {
		return func() error { return pass(client, server, data) }
	}
	c, err := acceptOne(server)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = unix.Close(c) })
	return func() error { return errors.Join(pass(client, c, data[:1]), pass(c, client, data[:1])) }
}

// pass writes to a socket and reads it from the other end.
func pass(from, to int, data []byte) error {
	if err := write(from, data); err != nil {
		return err
	}
	_, err := read(to, data)
	return err
}

// connectOnce makes a connection to the listening socket, from the thread's namespace.
func connectOnce(server int, to netip.AddrPort) error {
	client, err := dial(unix.SOCK_STREAM, to)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(client) }()
	c, err := acceptOne(server)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(c) }()
	data := []byte{0}
	return errors.Join(pass(client, c, data), pass(c, client, data),
		unix.SetsockoptLinger(client, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
}

func threadTime() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return t.Nano()
}

// redirectAll attaches programs that redirect all IPv4 packets of a way to its other end.
func redirectAll(b *testing.B, w *world, across bool) {
	b.Helper()
	for i := range 2 {
		node, own, other := &w.nodes[0], w.nodes[0].pods[i], w.nodes[0].pods[1-i]
		if across {
			node, own = &w.nodes[i], w.nodes[i].pods[0]
		}
		err := node.ns.Do(func() error {
			if !across {
				return attach(b, own.link, other.link, other.mac[:])
			}
			if err := attach(b, own.link, "eth0", nil); err != nil {
				return err
			}
			return attach(b, "eth0", own.link, own.mac[:])
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// attach makes IPv4 packets that arrive at a link go to another one: with a MAC address into its pod, else to the next hop.
func attach(b *testing.B, at, to string, mac []byte) error {
	from, err := netlink.LinkByName(at)
	if err != nil {
		return err
	}
	target, err := netlink.LinkByName(to)
	if err != nil {
		return err
	}
	code := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, 16, asm.Word), // protocol
		asm.JNE.Imm(asm.R2, 0x0008, "stack"),
	}
	if mac != nil {
		code = append(code,
			asm.StoreImm(asm.RFP, -8, int64(int32(binary.NativeEndian.Uint32(mac))), asm.Word),
			asm.StoreImm(asm.RFP, -4, int64(binary.NativeEndian.Uint16(mac[4:])), asm.Half),
			asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, 0), asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -8),
			asm.Mov.Imm(asm.R4, 6), asm.Mov.Imm(asm.R5, 0), asm.FnSkbStoreBytes.Call(),
			asm.Mov.Imm(asm.R1, int32(target.Attrs().Index)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirectPeer.Call(), asm.Return(),
		)
	} else {
		code = append(code,
			asm.Mov.Imm(asm.R1, int32(target.Attrs().Index)), asm.Mov.Imm(asm.R2, 0), asm.Mov.Imm(asm.R3, 0), asm.Mov.Imm(asm.R4, 0),
			asm.FnRedirectNeigh.Call(), asm.Return(),
		)
	}
	code = append(code, asm.Mov.Imm(asm.R0, -1).WithSymbol("stack"), asm.Return())
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, AttachType: ebpf.AttachTCXIngress, License: "GPL", Instructions: code,
	})
	if err != nil {
		return err
	}
	b.Cleanup(func() { _ = p.Close() })
	l, err := link.AttachTCX(link.TCXOptions{Interface: from.Attrs().Index, Program: p, Attach: ebpf.AttachTCXIngress})
	if err == nil {
		b.Cleanup(func() { _ = l.Close() })
	}
	return err
}
