// SPDX-License-Identifier: Apache-2.0

package conntrack_test

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/conntrack"
	"github.com/weft-net/weft/internal/kernel/effect"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// listener is what conntrack.EachFeed passes.
type listener = func(testing.TB, *netns.NS, func([]conntrack.Event)) *conntrack.Listener

// tracking returns a namespace whose loopback is tracked, with translation of one address.
func tracking(t testing.TB) *netns.NS {
	t.Helper()
	ns := nettest.NS(t, "n")
	nettest.Run(t, ns, "ip", "link", "set", "lo", "up")
	if out, err := nettest.Try(ns, "nft", "add table ip t; "+
		"add chain ip t c { type nat hook output priority -100; }; "+
		"add rule ip t c ip daddr 127.0.9.9 udp dport 53 dnat to 127.0.0.2:5353"); err != nil {
		nettest.Skip(t, "the kernel has no NAT: "+out)
	}
	return ns
}

// send sends n datagrams from different ports, each a connection.
func send(t *testing.T, ns *netns.NS, to string, n int) {
	t.Helper()
	err := ns.Do(func() error {
		for i := range n {
			c, err := (&net.Dialer{LocalAddr: &net.UDPAddr{Port: 10000 + i}}).Dial("udp", to)
			if err != nil {
				return err
			}
			_, err = c.Write([]byte("x"))
			if err := errors.Join(err, c.Close()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A new connection is reported with both tuples, and its end with counters if the kernel counts.
func TestEvents(t *testing.T) { conntrack.EachFeed(t, testEvents) }

func testEvents(t *testing.T, listen listener) {
	defer goleak.VerifyNone(t)
	ns := tracking(t)
	nettest.Run(t, ns, "sysctl", "-qw", "net.netfilter.nf_conntrack_acct=1")
	events := make(chan conntrack.Event, 100)
	l := listen(t, ns, func(all []conntrack.Event) {
		for _, e := range all {
			events <- e
		}
	})
	defer l.Close()
	send(t, ns, "127.0.9.9:53", 1)
	next := func(kind conntrack.Kind) conntrack.Event {
		t.Helper()
		for late := time.After(time.Minute); ; {
			select {
			case e := <-events:
				if e.Kind == kind {
					return e
				}
			case <-late:
				t.Fatalf("no event of kind %s", kind)
			}
		}
	}
	e := next(conntrack.New)
	if e.Proto != 17 || e.Dst != netip.MustParseAddrPort("127.0.9.9:53") ||
		e.ReplySrc != netip.MustParseAddrPort("127.0.0.2:5353") {
		t.Errorf("new: %+v", e)
	}
	var there []conntrack.Event
	if err := conntrack.Dump(ns, func(e conntrack.Event) { there = append(there, e) }); err != nil {
		t.Fatal(err)
	}
	if len(there) != 1 || there[0].Connection != e.Connection || there[0].Kind != conntrack.Tracked {
		t.Errorf("dump: %+v", there)
	}
	var tracked effect.Conntrack
	_, err := tracked.Flush(ns, func(state.Connection) bool { return true })
	if err = errors.Join(err, tracked.Close()); err != nil {
		t.Fatal(err)
	}
	if e = next(conntrack.End); e.Dst.Port() != 53 || !e.Counted || e.Orig.Packets != 1 || e.Orig.Bytes == 0 {
		t.Errorf("end: %+v", e)
	}
}

// The end of a connection is not reported before its beginning, also if the reader is busy with that.
func TestOrder(t *testing.T) { conntrack.EachFeed(t, testOrder) }

func testOrder(t *testing.T, listen listener) {
	defer goleak.VerifyNone(t)
	ns := tracking(t)
	kinds, begun := make(chan conntrack.Kind, 4), make(chan struct{})
	l := listen(t, ns, func(all []conntrack.Event) {
		for _, e := range all {
			if e.Kind == conntrack.New {
				close(begun)
				time.Sleep(50 * time.Millisecond)
			}
			kinds <- e.Kind
		}
	})
	defer l.Close()
	send(t, ns, "127.0.0.1:53", 1)
	<-begun
	var tracked effect.Conntrack
	_, err := tracked.Flush(ns, func(state.Connection) bool { return true })
	if err = errors.Join(err, tracked.Close()); err != nil {
		t.Fatal(err)
	}
	if first, second := <-kinds, <-kinds; first != conntrack.New || second != conntrack.End {
		t.Errorf("%s, then %s", first, second)
	}
}

// Each event that a slow reader misses is counted.
func TestLost(t *testing.T) { conntrack.EachFeed(t, testLost) }

func testLost(t *testing.T, listen listener) {
	defer goleak.VerifyNone(t)
	ns := tracking(t)
	seen, held := 0, make(chan struct{})
	l := listen(t, ns, func(all []conntrack.Event) {
		for _, e := range all {
			if e.Kind == conntrack.New {
				<-held
				seen++
			}
		}
	})
	const made = 20000
	send(t, ns, "127.0.0.1:9", made)
	lost, err := l.Lost(conntrack.New)
	if err != nil {
		t.Fatal(err)
	}
	if lost == 0 {
		t.Error("the buffer had room for all: nothing is tested")
	}
	close(held)
	for end := time.Now().Add(30 * time.Second); !l.Idle() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	l.Close()
	if uint64(seen)+lost != made {
		t.Errorf("%d seen and %d lost of %d", seen, lost, made)
	}
}

// A family is tracked as long as a rule uses connection tracking.
func TestTracks(t *testing.T) {
	defer goleak.VerifyNone(t)
	ns := tracking(t)
	for _, c := range []struct {
		v6, want bool
		rules    string
	}{
		{false, true, ""}, {true, false, ""},
		{true, true, "add table ip6 t; add chain ip6 t c { type filter hook input priority 0; }; " +
			"add rule ip6 t c ct state established accept"},
		{false, false, "delete table ip t"},
	} {
		if c.rules != "" {
			nettest.Run(t, ns, "nft", c.rules)
		}
		if got, err := new(conntrack.Source).Tracks(t.Context(), ns, c.v6); err != nil || got != c.want {
			t.Errorf("IPv6 %t after %q: %t, %v, want %t", c.v6, c.rules, got, err, c.want)
		}
	}
}

// TestRefused: a process that may not load the programs tries it once.
func TestRefused(t *testing.T) {
	defer goleak.VerifyNone(t)
	var source conntrack.Source
	why := make(chan error, 2)
	go func() {
		defer close(why)
		runtime.LockOSThread() // and not unlocked: the thread ends with its capabilities
		if err := dropCapabilities(unix.CAP_SYS_ADMIN, unix.CAP_BPF, unix.CAP_PERFMON); err != nil {
			why <- err
			return
		}
		for range 2 {
			l, err := source.Listen(t.Context(), nil, func([]conntrack.Event) {})
			if err != nil {
				why <- err
				return
			}
			l.Close()
			why <- l.Fallback()
		}
	}()
	first, second := <-why, <-why
	if !errors.Is(first, unix.EPERM) {
		t.Fatalf("the programs are not refused: %v", first)
	}
	if first != second {
		t.Errorf("tried again: %v, then %v", first, second)
	}
}

// dropCapabilities takes capabilities from this thread.
func dropCapabilities(all ...int) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return err
	}
	for _, c := range all {
		data[c/32].Effective &^= 1 << (c % 32)
	}
	return unix.Capset(&head, &data[0])
}

// TestModule: events come by eBPF also if connection tracking is a module that is not loaded before. A kernel of which it is
// a part, or that uses it, has nothing to load.
func TestModule(t *testing.T) {
	if os.Getenv("WEFT_VM") == "" {
		t.Skip("it unloads the kernel's modules: make test-vm runs it")
	}
	defer goleak.VerifyNone(t)
	const module = "/sys/module/nf_conntrack"
	for again := true; again; {
		text, err := os.ReadFile("/proc/modules")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		again = false
		for line := range strings.Lines(string(text)) {
			name, _, _ := strings.Cut(line, " ")
			if strings.HasPrefix(name, "nf_") || strings.HasPrefix(name, "nft_") || strings.HasPrefix(name, "xt_") {
				again = unix.DeleteModule(name, unix.O_NONBLOCK) == nil || again
			}
		}
	}
	if _, err := os.Stat(module); err == nil {
		t.Skip("connection tracking cannot be unloaded")
	}
	var source conntrack.Source
	l, err := source.Listen(t.Context(), nil, func([]conntrack.Event) {})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := os.Stat(module); err != nil {
		t.Error(err)
	}
	if why := l.Fallback(); why != nil {
		t.Errorf("events come by netlink: %v", why)
	}
}

// The states of a TCP connection are reported between its beginning and its end, while they are followed.
func TestStates(t *testing.T) { conntrack.EachFeed(t, testStates) }

func testStates(t *testing.T, listen listener) {
	defer goleak.VerifyNone(t)
	ns := tracking(t)
	events := make(chan conntrack.Event, 100)
	l := listen(t, ns, func(all []conntrack.Event) {
		for _, e := range all {
			events <- e
		}
	})
	defer l.Close()
	connect := func(reset bool) {
		t.Helper()
		err := ns.Do(func() error {
			server, err := net.Listen("tcp", "127.0.0.1:80")
			if err != nil {
				return err
			}
			defer func() { _ = server.Close() }()
			c, err := net.Dial("tcp", "127.0.0.1:80")
			if err != nil {
				return err
			}
			other, err := server.Accept()
			if err != nil {
				return errors.Join(err, c.Close())
			}
			if reset {
				err = c.(*net.TCPConn).SetLinger(0)
			}
			return errors.Join(err, c.Close(), other.Close())
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// states returns the states until one: the kernel of a busy host processes the last packets later.
	states := func(last string) (all []string) {
		t.Helper()
		for {
			select {
			case e := <-events:
				if all = append(all, string(e.Kind)+" "+e.State); all[len(all)-1] == last {
					return all
				}
			case <-time.After(time.Minute):
				t.Fatalf("%v, without %s", all, last)
			}
		}
	}
	flush := func() (states []string) {
		t.Helper()
		var tracked effect.Conntrack
		_, err := tracked.Flush(ns, func(state.Connection) bool { return true })
		if err = errors.Join(err, tracked.Close()); err != nil {
			t.Fatal(err)
		}
		for {
			select {
			case e := <-events:
				if e.Kind == conntrack.End {
					return states
				}
				if e.Dst.Port() != 80 {
					t.Errorf("another connection: %+v", e)
				}
				states = append(states, string(e.Kind)+" "+e.State)
			case <-time.After(time.Minute):
				t.Fatal("no end")
			}
		}
	}
	if connect(false); !slices.Equal(flush(), []string{"new syn-sent"}) {
		t.Error("states are reported that are not followed")
	}
	for _, c := range []struct {
		reset bool
		want  []string
	}{
		{false, []string{
			"new syn-sent", "update syn-recv", "update established", "update fin-wait", "update last-ack", "update time-wait",
		}},
		{true, []string{"new syn-sent", "update syn-recv", "update established", "update close"}},
	} {
		if err := l.FollowStates(true); err != nil {
			t.Fatal(err)
		}
		connect(c.reset)
		got := states(c.want[len(c.want)-1])
		got = append(got, flush()...)
		// Both ends may close before either answers.
		if last := got[len(got)-1]; !slices.Equal(got[:min(len(got), 4)], c.want[:4]) || last != c.want[len(c.want)-1] {
			t.Errorf("reset %t: %v, want %v", c.reset, got, c.want)
		}
	}
	if err := l.FollowStates(false); err != nil {
		t.Fatal(err)
	}
	if connect(false); !slices.Equal(flush(), []string{"new syn-sent"}) {
		t.Error("states are reported that are not followed any more")
	}
}

// What happens in other namespaces is not reported.
func TestNamespace(t *testing.T) { conntrack.EachFeed(t, namespace) }

func namespace(t *testing.T, listen listener) {
	defer goleak.VerifyNone(t)
	ns, other := tracking(t), tracking(t)
	events := make(chan conntrack.Event, 100)
	l := listen(t, ns, func(all []conntrack.Event) {
		for _, e := range all {
			events <- e
		}
	})
	defer l.Close()
	send(t, other, "127.0.0.1:9", 1)
	send(t, ns, "127.0.0.1:53", 1)
	if e := <-events; e.Dst.Port() != 53 {
		t.Errorf("%+v", e)
	}
}

// A connection that a program puts into the table is reported, with IPv6, and a protocol without ports.
func TestInserted(t *testing.T) { conntrack.EachFeed(t, inserted) }

func inserted(t *testing.T, listen listener) {
	defer goleak.VerifyNone(t)
	ns := tracking(t)
	events := make(chan conntrack.Event, 100)
	l := listen(t, ns, func(all []conntrack.Event) {
		for _, e := range all {
			events <- e
		}
	})
	defer l.Close()
	for _, c := range []struct {
		args string
		want state.Connection
	}{
		{"-s fd00::1 -d fd00::2 -p udp --sport 1 --dport 2", state.Connection{
			Proto: 17, Src: netip.MustParseAddrPort("[fd00::1]:1"), Dst: netip.MustParseAddrPort("[fd00::2]:2"),
			ReplySrc: netip.MustParseAddrPort("[fd00::2]:2"), ReplyDst: netip.MustParseAddrPort("[fd00::1]:1"),
		}},
		{"-s 10.0.0.1 -d 10.0.0.2 -p icmp --icmp-type 8 --icmp-code 0 --icmp-id 7", state.Connection{
			Proto: 1, Src: netip.MustParseAddrPort("10.0.0.1:0"), Dst: netip.MustParseAddrPort("10.0.0.2:0"),
			ReplySrc: netip.MustParseAddrPort("10.0.0.2:0"), ReplyDst: netip.MustParseAddrPort("10.0.0.1:0"),
		}},
	} {
		nettest.Run(t, ns, append([]string{"conntrack", "-I", "--timeout", "60"}, strings.Fields(c.args)...)...)
		if e := <-events; e.Kind != conntrack.New || e.Connection != c.want {
			t.Errorf("%s: %+v, want %+v", c.args, e, c.want)
		}
	}
}

// A connection of which two packets are the first at once is reported once.
func TestOnce(t *testing.T) { conntrack.EachFeed(t, once) }

func once(t *testing.T, listen listener) {
	defer goleak.VerifyNone(t)
	ns := tracking(t)
	var mu sync.Mutex
	seen := map[state.Connection]int{}
	l := listen(t, ns, func(all []conntrack.Event) {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range all {
			if e.Kind == conntrack.New {
				seen[e.Connection]++
			}
		}
	})
	const made = 5000
	err := ns.Do(func() error {
		for i := range made {
			c, err := (&net.Dialer{LocalAddr: &net.UDPAddr{Port: 10000 + i}}).Dial("udp", "127.0.0.1:9")
			if err != nil {
				return err
			}
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() { _, _ = c.Write([]byte("x")) }) // a refusal of the first one is the second one's error
			}
			both.Wait()
			if err := c.Close(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); !l.Idle() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	l.Close()
	if len(seen) != made {
		t.Errorf("%d connections of %d", len(seen), made)
	}
	for c, n := range seen {
		if n != 1 {
			t.Errorf("%d times: %+v", n, c)
		}
	}
}
