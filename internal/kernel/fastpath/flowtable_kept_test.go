// SPDX-License-Identifier: Apache-2.0

package fastpath_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/fastpath"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// Flows over a VXLAN take the flowtable at its device, in both families and directions.
func TestFlowtableVXLAN(t *testing.T) {
	w := newWorld(t)
	w.overVXLAN(t)
	f := flowsOf(t, w)
	for _, c := range []struct {
		from, to *netns.NS
		addr     string
	}{{f.a, f.c, addrC}, {f.a, f.c, sixC}, {f.c, f.b, addrB}, {f.c, f.b, sixB}} {
		for _, network := range []string{"tcp", "udp"} {
			t.Run(network+" to "+c.addr, func(t *testing.T) {
				s := f.dial(t, network, c.from, c.to, c.addr)
				f.fast(t, s)
				if s.must(5, 1300); network == "tcp" { // also with segments that the link's driver cuts
					s.must(1, 300_000)
				}
			})
		}
	}
}

// Flows of a guest take the flowtable to its tap and from it, wherever the tap is, and a queueing discipline of the tap sees
// them.
func TestFlowtableTap(t *testing.T) {
	for name, onNode := range map[string]bool{"on the node": true, "in the pod": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.behindTap(t, onNode)
			f := flowsOf(t, w)
			for _, c := range []struct {
				from, to *netns.NS
				addr     string
			}{{f.a, f.b, addrB}, {f.a, f.b, sixB}, {f.b, f.c, addrC}, {f.b, f.c, sixC}} {
				for _, network := range []string{"tcp", "udp"} {
					s := f.dial(t, network, c.from, c.to, c.addr)
					if f.fast(t, s); network == "tcp" { // also with segments that the tap does not take in one
						s.must(1, 300_000)
					}
				}
			}
			limited(t, f.node, "calib")
			before := queued(t, f.node, "calib")
			f.fast(t, f.dial(t, "udp", f.a, f.b, net.JoinHostPort(addrB, "7001")))
			if n := queued(t, f.node, "calib") - before; n < 20 {
				t.Errorf("the queueing discipline saw %d packets", n)
			}
		})
	}
}

// limited adds a queueing discipline that limits its bandwidth to a link.
func limited(t *testing.T, ns *netns.NS, link string) {
	t.Helper()
	nettest.Run(t, ns, "tc", "qdisc", "add", "dev", link, "root", "tbf", "rate", "100mbit", "burst", "100k", "latency", "50ms")
}

// The limits of a pod's bandwidth see all packets of the flowtable: to the pod at its link on the node, from it at its
// interface.
func TestFlowtableBandwidth(t *testing.T) {
	f := newFlows(t)
	limited(t, f.node, "calib")
	limited(t, f.b, "eth0")
	s := f.dial(t, "tcp", f.c, f.b, addrB)
	f.fast(t, s)
	in, out := queued(t, f.node, "calib"), queued(t, f.b, "eth0")
	s.must(20, 100)
	in, out = queued(t, f.node, "calib")-in, queued(t, f.b, "eth0")-out
	if in < 20 || out < 20 {
		t.Errorf("the queueing disciplines saw %d packets to the pod, and %d from it", in, out)
	}
}

// Fragments and packets with IP options or extension headers, of a flow in the flowtable, take the ordinary path and
// arrive.
func TestFlowtableFragmentsAndOptions(t *testing.T) {
	f := newFlows(t)
	for _, to := range []struct {
		addr          string
		level, option int
		value         string
	}{
		{addrC, unix.IPPROTO_IP, unix.IP_OPTIONS, "\x01\x01\x01\x00"},
		{sixC, unix.IPPROTO_IPV6, unix.IPV6_DSTOPTS, "\x00\x00\x01\x04\x00\x00\x00\x00"},
		{sixC, unix.IPPROTO_IPV6, unix.IPV6_HOPOPTS, "\x00\x00\x01\x04\x00\x00\x00\x00"},
	} {
		t.Run(fmt.Sprintf("%s option %d", to.addr, to.option), func(t *testing.T) {
			s := f.dial(t, "udp", f.a, f.c, to.addr)
			f.fast(t, s)
			seen := forwarded(t, f.node)
			if s.must(20, 4000); forwarded(t, f.node)-seen < 40 {
				t.Errorf("the stack forwarded %d datagrams of 40 in fragments", forwarded(t, f.node)-seen)
			}
			f.fast(t, s)
			raw, err := s.Conn.(*net.UDPConn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			if e := raw.Control(func(fd uintptr) { err = unix.SetsockoptString(int(fd), to.level, to.option, to.value) }); e != nil || err != nil {
				t.Fatal(e, err)
			}
			seen = forwarded(t, f.node)
			if s.must(20, 100); forwarded(t, f.node)-seen < 20 {
				t.Errorf("the stack forwarded %d of 20 packets with options", forwarded(t, f.node)-seen)
			}
		})
	}
}

// While packets of a flow take the flowtable its entry of conntrack does not expire, and when the flow has left the
// flowtable conntrack's timeout applies.
func TestFlowtableTimeouts(t *testing.T) {
	f := newFlows(t)
	// 30 seconds of the flowtable's own timeout count as a part of it.
	nettest.Run(t, f.node, "sysctl", "-qw", "net.netfilter.nf_conntrack_udp_timeout=1", "net.netfilter.nf_conntrack_udp_timeout_stream=33")
	s := f.dial(t, "udp", f.a, f.b, addrB)
	f.fast(t, s)
	first := entries(t, f.node, s)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		s.must(1, 100)
	}
	if again := entries(t, f.node, s); len(first) != 1 || len(again) != 1 || first[0] != again[0] || f.offloaded(t) == 0 {
		t.Errorf("the entry %v has become %v, %d flows are in the flowtable", first, again, f.offloaded(t))
	}
	if err := f.table.Flush(); err != nil {
		t.Fatal(err)
	}
	if now := entries(t, f.node, s); len(now) != 1 || now[0] != first[0] {
		t.Errorf("the entry %v has become %v with a flush", first, now)
	}
	expires := func() {
		t.Helper()
		for end := time.Now().Add(60 * time.Second); len(entries(t, f.node, s)) > 0; time.Sleep(200 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the entry does not expire:\n%s", tracked(t, f.node))
			}
		}
	}
	s.must(1, 100)
	expires()
	// For this, node/fastpath does not use it with such a timeout: the entry of an active flow ends.
	nettest.Run(t, f.node, "sysctl", "-qw", "net.netfilter.nf_conntrack_udp_timeout_stream=30")
	f.fast(t, s)
	if err := f.table.Flush(); err != nil {
		t.Fatal(err)
	}
	expires()
}

// entries returns the identifiers of the entries of conntrack of a stream.
func entries(t *testing.T, ns *netns.NS, s *stream) (ids []string) {
	t.Helper()
	_, port, err := net.SplitHostPort(s.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(nettest.Run(t, ns, "conntrack", "-L", "-o", "id", "-p", "udp")) {
		if !strings.Contains(line, "sport="+port+" ") {
			continue
		}
		_, id, _ := strings.Cut(line, " id=")
		ids = append(ids, strings.TrimSpace(id))
	}
	return ids
}

// A process that is killed leaves no table, and flows continue.
func TestFlowtableKilled(t *testing.T) {
	const variable = "WEFT_TEST_FLOWTABLE"
	if os.Getenv(variable) != "" {
		own, err := netns.Current()
		if err != nil {
			t.Fatal(err)
		}
		table, err := fastpath.LoadFlowtable(own)
		if err != nil {
			t.Fatal(err)
		}
		w := &world{uplink: "eth0", node: own}
		if left, err := table.Set(t.Context(), w.links()); err != nil || len(left) > 0 {
			t.Fatal(left, err)
		}
		if err := table.Enable(true, 0, 0); err != nil {
			t.Fatal(err)
		}
		fmt.Println("enabled")
		time.Sleep(time.Minute)
		return
	}
	f := newFlows(t)
	if err := f.table.Enable(false, 0, 0); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "TestFlowtableKilled$")
	cmd.Env = append(os.Environ(), variable+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.node.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	ready := false
	for lines := bufio.NewScanner(out); !ready && lines.Scan(); {
		ready = strings.Contains(lines.Text(), "enabled")
	}
	if !ready {
		t.Fatal("the other process has no flowtable")
	}
	s := f.dial(t, "tcp", f.a, f.b, addrB)
	f.fast(t, s)
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for end := time.Now().Add(time.Minute); strings.Contains(nettest.Run(t, f.node, "nft", "list", "ruleset"), fastpath.FlowTable); {
		if time.Now().After(end) {
			t.Fatal("tables are left")
		}
		time.Sleep(10 * time.Millisecond)
	}
	f.slow(t, s)
}
