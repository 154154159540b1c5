// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/connectivitytest/probe"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

// world is two hosts with a router between them, and a server on the second one.
type world struct {
	t                      *testing.T
	client, router, server *netns.NS
}

func newWorld(t *testing.T) world {
	t.Helper()
	w := world{t, nettest.NS(t, "client"), nettest.NS(t, "router"), nettest.NS(t, "server")}
	for i, ns := range []*netns.NS{w.client, w.server} {
		n := []string{"1", "2"}[i]
		for _, line := range []string{
			"link add eth" + n + " mtu 1400 type veth peer name eth0 mtu 1400 netns " + ns.Path(),
			"link set eth" + n + " up", "addr add 198.18." + n + ".1/24 dev eth" + n, "addr add 2001:2:0:" + n + "::1/64 dev eth" + n + " nodad",
		} {
			nettest.Run(t, w.router, append([]string{"ip"}, strings.Fields(line)...)...)
		}
		for _, line := range []string{
			"link set lo up", "link set eth0 up", "addr add 198.18." + n + ".2/24 dev eth0", "addr add 2001:2:0:" + n + "::2/64 dev eth0 nodad",
			"route add default via 198.18." + n + ".1", "route add default via 2001:2:0:" + n + "::1",
		} {
			nettest.Run(t, ns, append([]string{"ip"}, strings.Fields(line)...)...)
		}
	}
	// A second address, from which an answer would leave if the server did not choose.
	nettest.Run(t, w.server, "ip", "addr", "add", "198.18.2.3/24", "dev", "eth0")
	nettest.Run(t, w.router, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	cmd := w.command("serve", "--name", "web", "--port", "8080", "--port", "8081")
	if err := w.server.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	// An IPv6 neighbor is not resolved before the address of the link has passed duplicate address detection.
	for _, at := range []string{"198.18.2.2:8081", "[2001:2:0:2::2]:8081"} {
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			r := w.probe(probe.Probe{Kind: probe.TCP, To: at, Millis: 500})[0]
			if r.State == probe.Answered {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the server does not answer: %+v", r)
			}
		}
	}
	return w
}

func (w world) command(args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(nettest.Programs(w.t), "weft"), append([]string{"connectivity-test"}, args...)...)
}

// probe runs probes in the client's namespace.
func (w world) probe(all ...probe.Probe) []probe.Result {
	w.t.Helper()
	text, err := json.Marshal(all)
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := w.command("probe", string(text))
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := w.client.Do(cmd.Start); err != nil {
		w.t.Fatal(err)
	}
	var results []probe.Result
	if err := cmd.Wait(); err != nil {
		w.t.Fatalf("%v: %s", err, said.String())
	}
	if err := json.Unmarshal(out.Bytes(), &results); err != nil || len(results) != len(all) {
		w.t.Fatalf("%v: %s", err, out.String())
	}
	return results
}

const patience = 5000 // milliseconds for an answer

// all returns a probe of each kind in both families.
func all(millis int) []probe.Probe {
	var out []probe.Probe
	for _, host := range [][2]string{
		{"198.18.2.2", "198.18.2.2:8080"}, {"198.18.2.3", "198.18.2.3:8080"}, {"2001:2:0:2::2", "[2001:2:0:2::2]:8080"},
	} {
		own := "198.18.1.2"
		if strings.Contains(host[0], ":") {
			own = "2001:2:0:1::2"
		}
		out = append(
			out,
			probe.Probe{Kind: probe.TCP, To: host[1], Millis: millis},
			probe.Probe{Kind: probe.UDP, To: host[1], Millis: millis},
			probe.Probe{
				Kind:   probe.ICMP,
				To:     host[0],
				Millis: millis,
			},
			probe.Probe{Kind: probe.MTU, To: host[0], Millis: millis},
			probe.Probe{Kind: probe.Transfer, To: host[1], Size: 1 << 20, Millis: 4 * millis},
			probe.Probe{Kind: probe.Fragments, To: host[1], Size: 8000, Millis: millis},
			probe.Probe{Kind: probe.Spoof, To: host[1], From: own, Millis: 2 * millis},
			probe.Probe{
				Kind:   probe.Flow,
				To:     host[1],
				Millis: 300,
			},
			probe.Probe{Kind: probe.Connect, To: host[1], Millis: millis},
		)
	}
	return out
}

// Each kind is answered where nothing is in the way, by the server and from the address that was asked.
func TestAnswered(t *testing.T) {
	w := newWorld(t)
	probes := all(patience)
	for i, r := range w.probe(probes...) {
		p := probes[i]
		if r.State != probe.Answered {
			t.Errorf("%s to %s: %+v", p.Kind, p.To, r)
		}
		if (p.Kind == probe.TCP || p.Kind == probe.UDP) &&
			(r.Server != "web" || !strings.Contains(r.Source, "1:2") && !strings.Contains(r.Source, "1.2:") && !strings.Contains(r.Source, "::2]")) {
			t.Errorf("%s to %s was answered by %q to %q", p.Kind, p.To, r.Server, r.Source)
		}
	}
}

// What a firewall drops is silent, whatever was sent; what could not be tried is not silent.
func TestSilent(t *testing.T) {
	w := newWorld(t)
	nettest.Run(t, w.router, "nft",
		"add table inet fw; add chain inet fw f { type filter hook forward priority 0; policy drop; }")
	probes := all(700)
	for i, r := range w.probe(probes...) {
		p := probes[i]
		want := probe.Silent
		if p.Kind == probe.Spoof { // the server cannot be asked what has arrived
			want = probe.Failed
		}
		if r.State != want {
			t.Errorf("%s to %s: %+v", p.Kind, p.To, r)
		}
	}
	for name, p := range map[string]probe.Probe{
		"no such kind": {Kind: "x", Millis: 100}, "no address": {Kind: probe.ICMP, To: "host", Millis: 100},
		"refused": {Kind: probe.TCP, To: "127.0.0.1:9", Millis: patience},
	} {
		if r := w.probe(p)[0]; r.State != probe.Failed {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// An MTU on the way that is smaller than the sender's, without a message about it, is noticed by large packets only.
func TestSmallerMTU(t *testing.T) {
	w := newWorld(t)
	nettest.Run(t, w.router, "nft", "add table inet fw; add chain inet fw f { type filter hook forward priority 0; }; "+
		"add rule inet fw f meta length > 1300 drop")
	results := w.probe(
		probe.Probe{
			Kind:   probe.UDP,
			To:     "198.18.2.2:8080",
			Millis: patience,
		},
		probe.Probe{Kind: probe.MTU, To: "198.18.2.2", Millis: 700},
		probe.Probe{Kind: probe.Transfer, To: "198.18.2.2:8080", Size: 1 << 20, Millis: 700},
	)
	for i, want := range []probe.State{probe.Answered, probe.Silent, probe.Silent} {
		if results[i].State != want {
			t.Errorf("%d: %+v", i, results[i])
		}
	}
}

// A datagram from an address that is not the sender's is counted where nothing drops it, and silent where something does.
func TestSpoof(t *testing.T) {
	w := newWorld(t)
	for _, p := range []probe.Probe{
		{Kind: probe.Spoof, To: "198.18.2.2:8080", From: "198.18.1.77", Millis: patience},
		{Kind: probe.Spoof, To: "[2001:2:0:2::2]:8080", From: "2001:2:0:1::77", Millis: patience},
	} {
		if r := w.probe(p)[0]; r.State != probe.Answered {
			t.Errorf("from %s: %+v", p.From, r)
		}
	}
	nettest.Run(t, w.router, "nft", "add table inet fw; add chain inet fw f { type filter hook forward priority 0; }; "+
		"add rule inet fw f ip saddr 198.18.1.77 drop; add rule inet fw f ip6 saddr 2001:2:0:1::77 drop")
	for _, p := range []probe.Probe{
		{Kind: probe.Spoof, To: "198.18.2.2:8080", From: "198.18.1.77", Millis: patience},
		{Kind: probe.Spoof, To: "[2001:2:0:2::2]:8080", From: "2001:2:0:1::77", Millis: patience},
	} {
		if r := w.probe(p)[0]; r.State != probe.Silent {
			t.Errorf("from %s: %+v", p.From, r)
		}
	}
}

// A connection on which a guest sends lines is measured until it is asked to end; a line that is missing and a connection
// that breaks are failures, and so is one that is never ended.
func TestLines(t *testing.T) {
	w := newWorld(t)
	var l net.Listener
	if err := w.server.Do(func() (err error) {
		l, err = net.Listen("tcp", "198.18.2.2:7007")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	send := make(chan func(net.Conn), 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			(<-send)(c)
			_ = c.Close()
		}
	}()
	lines := func(c net.Conn, from, to int) error {
		for n := from; n < to; n++ {
			if _, err := fmt.Fprintln(c, n); err != nil {
				return err
			}
			time.Sleep(5 * time.Millisecond)
		}
		return nil
	}
	const millis = 20_000
	to := "198.18.2.2:7007"
	for name, one := range map[string]struct {
		server func(net.Conn)
		millis int
		wrong  string
	}{
		"a pause": {func(c net.Conn) {
			_ = lines(c, 0, 10)
			time.Sleep(400 * time.Millisecond)
			_ = lines(c, 10, 1<<20) // until the other end closes it
		}, millis, ""},
		"a missing line": {func(c net.Conn) { _ = errors.Join(lines(c, 0, 10), lines(c, 11, 12)) }, millis, `line 10 is "11"`},
		"a broken one":   {func(c net.Conn) { _ = lines(c, 0, 10) }, millis, "after 10 lines: line 10: "},
		"no end":         {func(c net.Conn) { _ = lines(c, 0, 1<<20) }, 3000, "timeout"},
	} {
		send <- one.server
		probes := []probe.Probe{{Kind: probe.Lines, To: to, Millis: one.millis}, {Kind: probe.LinesBegun, To: to, Millis: one.millis}}
		if one.millis == millis {
			probes = append(probes, probe.Probe{Kind: probe.LinesEnd, To: to, Millis: one.millis})
		}
		r := w.probe(probes...)[0]
		switch {
		case one.wrong == "":
			if r.State != probe.Answered || r.PauseMillis < 400 || r.PauseMillis > millis {
				t.Errorf("%s: %+v", name, r)
			}
		case r.State != probe.Failed || !strings.Contains(r.Error, one.wrong):
			t.Errorf("%s: %+v, want %s", name, r, one.wrong)
		}
	}
	if r := w.probe(probe.Probe{Kind: probe.LinesBegun, To: to, Millis: 100})[0]; r.State == probe.Answered {
		t.Errorf("without a connection: %+v", r)
	}
}
