// SPDX-License-Identifier: Apache-2.0

package conntrack_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/conntrack"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// connect makes n connections of TCP, one after the other: a byte there and back, and a reset. All is on the calling thread,
// so that an emulated processor that counts instructions counts the same each time.
func connect(n int) (err error) {
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(listener)) }()
	to := &unix.SockaddrInet4{Port: 80, Addr: [4]byte{127, 0, 0, 1}}
	if err := errors.Join(unix.Bind(listener, to), unix.Listen(listener, 16)); err != nil {
		return err
	}
	b := []byte("x")
	for range n {
		from, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		err = unix.Connect(from, to)
		at, _, failed := unix.Accept(listener)
		if err = errors.Join(err, failed); err != nil {
			return err
		}
		for _, step := range []func() (int, error){
			func() (int, error) { return unix.Write(from, b) }, func() (int, error) { return unix.Read(at, b) },
			func() (int, error) { return unix.Write(at, b) }, func() (int, error) { return unix.Read(from, b) },
		} {
			if _, err := step(); err != nil {
				return err
			}
		}
		reset := &unix.Linger{Onoff: 1}
		err = errors.Join(unix.SetsockoptLinger(from, unix.SOL_SOCKET, unix.SO_LINGER, reset), unix.Close(from), unix.Close(at))
		if err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkConnection is what a connection costs with and without a Listener, which here does nothing with the events; an
// agent takes half a microsecond more for its names and its place in the ring.
func BenchmarkConnection(b *testing.B) {
	const perIteration = 400
	run := func(b *testing.B, acct string, listen func(testing.TB, *netns.NS, func([]conntrack.Event)) *conntrack.Listener) {
		ns := tracking(b)
		nettest.Run(b, ns, "sysctl", "-qw", "net.netfilter.nf_conntrack_acct="+acct, "net.netfilter.nf_conntrack_tcp_timeout_close=1",
			"net.netfilter.nf_conntrack_max=1000000", "net.ipv4.ip_local_port_range=1024 65535")
		if listen != nil {
			l := listen(b, ns, func([]conntrack.Event) {})
			defer l.Close()
		}
		b.ResetTimer()
		// Many for one iteration, since benchmarks in an emulated host have few.
		if err := ns.Do(func() error { return connect(b.N * perIteration) }); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		b.ReportMetric(float64(b.Elapsed())/float64(b.N*perIteration), "ns/connection")
		b.ReportMetric(0, "ns/op")
	}
	b.Run("off", func(b *testing.B) { run(b, "0", nil) })
	b.Run("counted", func(b *testing.B) { run(b, "1", nil) })
	conntrack.EachFeed(b, func(b *testing.B, listen listener) { run(b, "1", listen) })
}
