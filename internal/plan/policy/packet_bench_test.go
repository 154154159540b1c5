// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// BenchmarkDeniedDatagram is the CPU time of a datagram that a node forwards to a pod and that none of the Calico policies of
// the pod allows, so that it passes all of their rules: to the port of a rule of each, or to another one. The sender's thread
// does all of it.
func BenchmarkDeniedDatagram(b *testing.B) {
	client, node, server := nettest.NS(b, "client"), nettest.NS(b, "node"), nettest.NS(b, "server")
	for _, line := range []string{
		"ip link add client type veth peer name eth0 netns " + client.Path(), "ip link add cali1 type veth peer name eth0 netns " + server.Path(),
		"ip addr add 10.9.0.1/24 dev client", "ip addr add 10.0.0.254/24 dev cali1", "ip link set client up", "ip link set cali1 up",
		"sysctl -qw net.ipv4.ip_forward=1",
	} {
		nettest.Run(b, node, strings.Fields(line)...)
	}
	for _, line := range []string{"ip addr add 10.9.0.9/24 dev eth0", "ip link set eth0 up", "ip route add default via 10.9.0.1"} {
		nettest.Run(b, client, strings.Fields(line)...)
	}
	for _, line := range []string{"ip addr add 10.0.0.1/24 dev eth0", "ip link set eth0 up", "ip route add default via 10.0.0.254"} {
		nettest.Run(b, server, strings.Fields(line)...)
	}
	c, err := nft.Dial(node)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, policies := range []int{1, 100, 1000} {
		if err := c.Apply(b.Context(), []state.Table{manyOrdered(policies, Config{}).Tables()[0].Table}); err != nil {
			b.Fatal(err)
		}
		for _, port := range []int{6100, 53} {
			b.Run(fmt.Sprintf("policies=%d/port=%d", policies, port), func(b *testing.B) {
				if err := client.Do(func() error { return sendMany(b, port) }); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func sendMany(b *testing.B, port int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	conn, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(10, 0, 0, 1), Port: port})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("x")); err != nil { // resolves the neighbor
		return err
	}
	var begin, end unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &begin); err != nil {
		return err
	}
	for b.Loop() {
		if _, err := conn.Write([]byte("x")); err != nil {
			return err
		}
	}
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &end); err != nil {
		return err
	}
	used := end.Stime.Nano() + end.Utime.Nano() - begin.Stime.Nano() - begin.Utime.Nano()
	b.ReportMetric(float64(used)/float64(b.N), "CPU-ns/op")
	return nil
}
