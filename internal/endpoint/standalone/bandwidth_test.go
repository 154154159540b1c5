// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

const (
	routed = `,"ipam":{"type":"host-local","subnet":"10.6.0.0/24","dataDir":"DATA"}`
	// 1 MB/s to the container, 500 kB/s from it.
	shaping = `"ingressRate":8000000,"ingressBurst":160000,"egressRate":4000000,"egressBurst":160000`
)

// with adds a result to a configuration.
func with(prev, conf string) string { return strings.Replace(conf, "{", `{"prevResult":`+prev+`,`, 1) }

// addressOf returns the first address of a result.
func addressOf(t *testing.T, result string) string {
	t.Helper()
	var r struct{ IPs []struct{ Address string } }
	if err := json.Unmarshal([]byte(result), &r); err != nil || len(r.IPs) == 0 {
		t.Fatalf("result %s: %v", result, err)
	}
	ip, _, _ := strings.Cut(r.IPs[0].Address, "/")
	return ip
}

// The bounds are wide, because hosts that run tests are busy; only the upper one is significant.

// speed sends size bytes over TCP and returns the rate at which the peer received them, in bytes per second.
func speed(t *testing.T, from, to *netns.NS, addr string, size int) float64 {
	t.Helper()
	var l net.Listener
	err := to.Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(addr, "0"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var c net.Conn
	err = from.Do(func() (err error) {
		c, err = net.DialTimeout("tcp", l.Addr().String(), time.Minute)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	_ = s.SetDeadline(time.Now().Add(15 * time.Second))
	begin := time.Now()
	go func() { _, _ = c.Write(make([]byte, size)) }()
	if n, err := io.CopyN(io.Discard, s, int64(size)); err != nil {
		t.Fatalf("%d of %d bytes: %v", n, size, err)
	}
	return float64(size) / time.Since(begin).Seconds()
}

func between(t *testing.T, what string, got, least, most float64) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: %.0f bytes a second, want %.0f to %.0f", what, got, least, most)
	}
}

// TestBandwidthOnAPair measures both directions of a pair, runs CHECK, and removes the limits.
func TestBandwidthOnAPair(t *testing.T) {
	h := newHost(t)
	ns := nettest.NS(t, "c1")
	here, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = here.Close() }()
	prev := h.must("ptp", "ADD", conf("1.0.0", "ptp", routed), ns).stdout
	shaped := with(prev, conf("1.0.0", "bandwidth", ","+shaping))
	result := h.must("bandwidth", "ADD", shaped, ns).stdout
	sameJSON(t, prev, result)
	ip := addressOf(t, result)
	between(t, "ingress", speed(t, here, ns, ip, 1<<20), 200_000, 1_300_000)
	between(t, "egress", speed(t, ns, here, "10.6.0.1", 1<<19), 100_000, 700_000)
	h.must("bandwidth", "CHECK", shaped, ns)

	for _, change := range []struct {
		ns   *netns.NS
		argv string
		want string
	}{
		{ns, "tc qdisc change dev eth0 root handle 7766: tbf rate 5mbit burst 20000b latency 25ms", "rate 625000bps"},
		{ns, "tc qdisc change dev eth0 root handle 7766: tbf rate 4mbit burst 30000b limit 32500b", "limit 32500"},
		{ns, "tc qdisc change dev eth0 root handle 7766: tbf rate 4mbit burst 30000b limit 32500b", "burst 3000"},
		{ns, "tc qdisc del dev eth0 root", "missing qdisc tbf dev eth0"},
		{here, "tc qdisc del dev " + hostEnd(t, prev) + " root", "missing qdisc tbf dev veth"},
	} {
		nettest.Run(t, change.ns, strings.Fields(change.argv)...)
		a := h.call("bandwidth", "CHECK", shaped, ns)
		if a.code() != 102 || !strings.Contains(a.stdout, change.want) {
			t.Errorf("CHECK after %s: %s", change.argv, a.stdout)
		}
		h.must("bandwidth", "DEL", shaped, ns)
		h.must("bandwidth", "ADD", shaped, ns)
		h.must("bandwidth", "CHECK", shaped, ns)
	}

	h.must("bandwidth", "DEL", shaped, ns)
	h.must("bandwidth", "DEL", shaped, ns)
	if out := nettest.Run(t, ns, "tc", "qdisc", "show") +
		nettest.Run(t, here, "tc", "qdisc", "show"); strings.Contains(out, "tbf") {
		t.Errorf("left: %s", out)
	}
	between(t, "without limits", speed(t, here, ns, ip, 8<<20), 2_500_000, 1e12)
	h.must("bandwidth", "CHECK", with(prev, conf("1.0.0", "bandwidth", "")), ns)
	h.must("ptp", "DEL", conf("1.0.0", "ptp", routed), ns)
}

func sameJSON(t *testing.T, want, got string) {
	t.Helper()
	var w, g any
	if json.Unmarshal([]byte(want), &w) != nil || json.Unmarshal([]byte(got), &g) != nil ||
		fmt.Sprint(w) != fmt.Sprint(g) {
		t.Errorf("result %s, want %s", got, want)
	}
}

func hostEnd(t *testing.T, result string) string {
	t.Helper()
	var r struct {
		Interfaces []struct{ Name, Sandbox string }
	}
	if err := json.Unmarshal([]byte(result), &r); err != nil {
		t.Fatal(err)
	}
	for _, i := range r.Interfaces {
		if i.Sandbox == "" && strings.HasPrefix(i.Name, "veth") {
			return i.Name
		}
	}
	t.Fatalf("no host end in %s", result)
	return ""
}

// TestBandwidthWithoutHostEnd measures a macvlan interface, which has no peer on the node.
func TestBandwidthWithoutHostEnd(t *testing.T) {
	nettest.Need(t, "macvlan", "ifb")
	h := newHost(t)
	ns, other := nettest.NS(t, "c1"), nettest.NS(t, "other")
	nettest.Run(t, nil, "ip", "link", "add", "wire0", "type", "veth", "peer", "name", "wire1")
	t.Cleanup(func() { _, _ = nettest.Try(nil, "ip", "link", "del", "wire0") })
	nettest.Run(t, nil, "ip", "link", "set", "wire1", "up")
	nettest.Run(t, nil, "ip", "link", "set", "wire0", "up")
	for i, p := range []*netns.NS{ns, other} {
		nettest.Run(t, nil, "ip", "link", "add", "link", "wire0", "name", "mv0", "type", "macvlan", "mode", "bridge")
		nettest.Run(t, nil, "ip", "link", "set", "mv0", "netns", p.Path(), "name", "eth0")
		nettest.Run(t, p, "ip", "addr", "add", fmt.Sprintf("10.7.0.%d/24", i+1), "dev", "eth0")
		nettest.Run(t, p, "ip", "link", "set", "eth0", "up")
	}
	prev := `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"` + ns.Path() +
		`"}],"ips":[{"address":"10.7.0.1/24","interface":0}]}`
	shaped := with(prev, conf("1.0.0", "bandwidth", `,"runtimeConfig":{"bandwidth":{`+shaping+`}}`))
	links := func() string { return steady(nettest.Run(t, ns, "ip", "-o", "link")) }
	before := links()
	h.must("bandwidth", "ADD", shaped, ns)
	between(t, "ingress", speed(t, other, ns, "10.7.0.1", 1<<20), 200_000, 1_300_000)
	between(t, "egress", speed(t, ns, other, "10.7.0.2", 1<<19), 100_000, 700_000)
	h.must("bandwidth", "CHECK", shaped, ns)
	nettest.Run(t, ns, "tc", "filter", "del", "dev", "eth0", "parent", "ffff:")
	if a := h.call("bandwidth", "CHECK", shaped, ns); a.code() != 102 ||
		!strings.Contains(a.stdout, "missing qdisc ingress dev eth0") {
		t.Errorf("CHECK without the filter: %s", a.stdout)
	}
	h.must("bandwidth", "DEL", shaped, ns)
	if after := links(); after != before {
		t.Errorf("links before:\n%s\nafter:\n%s", before, after)
	}
	if out := nettest.Run(t, ns, "tc", "qdisc", "show"); strings.Contains(out, "tbf") || strings.Contains(out, "ingress") {
		t.Errorf("left: %s", out)
	}
}

// TestBandwidthOfTwoInterfaces shapes two interfaces of one network in one container, and then only one of them.
func TestBandwidthOfTwoInterfaces(t *testing.T) {
	h := newHost(t)
	ns := nettest.NS(t, "c1")
	results := map[string]string{}
	for _, name := range []string{"eth0", "net1"} {
		results[name] = h.must("ptp", "ADD", conf("1.0.0", "ptp", routed), ns, "CNI_IFNAME="+name).stdout
		h.must("bandwidth", "ADD", with(results[name], conf("1.0.0", "bandwidth", ","+shaping)), ns, "CNI_IFNAME="+name)
	}
	h.must("bandwidth", "DEL", with(results["eth0"], conf("1.0.0", "bandwidth", ","+shaping)), ns, "CNI_IFNAME=eth0")
	if out := nettest.Run(t, ns, "tc", "qdisc", "show"); !strings.Contains(out, "tbf 7766: dev net1") ||
		strings.Contains(out, "dev eth0 root refcnt 2 rate") {
		t.Errorf("in the container: %s", out)
	}
	if out := nettest.Run(t, nil, "tc", "qdisc", "show"); strings.Count(out, "tbf 7766:") != 1 {
		t.Errorf("on the node: %s", out)
	}
	for _, name := range []string{"eth0", "net1"} {
		h.must("bandwidth", "DEL", with(results[name], conf("1.0.0", "bandwidth", ","+shaping)), nil, "CNI_IFNAME="+name)
		h.must("ptp", "DEL", conf("1.0.0", "ptp", routed), ns, "CNI_IFNAME="+name)
	}
}
