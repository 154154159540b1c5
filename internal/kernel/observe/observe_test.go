// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/netfilter"
	"github.com/weft-net/weft/internal/kernel/observe"
	"github.com/weft-net/weft/internal/kernel/reader"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/kernel/sysctl"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

func open(t *testing.T, ns *netns.NS) *observe.Namespace {
	t.Helper()
	sock, err := rtnl.Open(ns)
	if err != nil {
		t.Fatal(err)
	}
	n := &observe.Namespace{Reader: reader.New(sock), Socket: sock, Settings: sysctl.New(ns), Filters: netfilter.New(ns)}
	t.Cleanup(func() {
		n.Settings.Close()
		_, _ = sock.Close(), n.Filters.Close()
	})
	return n
}

// TestAnswers queries both namespaces together: each query is answered from its own, and a dead link is not found.
func TestAnswers(t *testing.T) {
	hostNS, podNS := nettest.NS(t, "host"), nettest.NS(t, "pod")
	host, pod := open(t, hostNS), open(t, podNS)
	host.Filters.Root = t.TempDir()
	if err := os.WriteFile(filepath.Join(host.Filters.Root, "list"), []byte("a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	nettest.Run(t, hostNS, "ip", "link", "add", "br0", "up", "type", "bridge")
	nettest.Run(t, hostNS, "ip", "addr", "add", "10.0.0.1/24", "dev", "br0")
	nettest.Run(t, hostNS, "ip", "link", "add", "host0", "master", "br0", "type", "veth", "peer", "name", "pod0")
	nettest.Run(t, hostNS, "ip", "link", "set", "pod0", "netns", podNS.Path())
	nettest.Run(t, hostNS, "ip", "link", "add", "dead0", "group", strconv.Itoa(link.DeadGroup), "type", "bridge")
	ask := func(q state.Query) state.Answer {
		t.Helper()
		answers, err := observe.Spaces{Host: host, Pod: pod}.Answer(t.Context(), []state.Query{q})
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		return answers[q]
	}
	if a := ask(state.Query{Space: state.Host, Link: "br0"}); !a.Found || len(a.Addrs) != 1 || a.Addrs[0].Link != "br0" {
		t.Errorf("br0: %+v", a)
	}
	if a := ask(state.Query{Space: state.Pod, Link: "br0"}); a.Found {
		t.Errorf("br0 is not in the pod: %+v", a)
	}
	if a := ask(state.Query{Space: state.Host, Link: "dead0"}); a.Found {
		t.Errorf("a link that waits to be deleted: %+v", a)
	}
	if a := ask(state.Query{Space: state.Pod, OtherEnd: "pod0"}); !a.Found || a.Link.Name != "host0" ||
		a.Link.Master != "br0" {
		t.Errorf("the other end of pod0: %+v", a.Link)
	}
	if a := ask(state.Query{Space: state.Host, LinkOf: netip.MustParseAddr("10.0.0.1")}); a.Link.Name != "br0" {
		t.Errorf("10.0.0.1 is on %q", a.Link.Name)
	}
	if a := ask(state.Query{Space: state.Host, RouteTo: netip.MustParseAddr("10.0.0.9")}); a.Link.Name != "br0" {
		t.Errorf("10.0.0.9 is reached over %q", a.Link.Name)
	}
	if a := ask(state.Query{Space: state.Host, File: "/list"}); a.Value != "a\n" {
		t.Errorf("/list: %+v", a)
	}
	if a := ask(state.Query{Space: state.Host, Program: "iptables"}); a.Found {
		t.Errorf("a program below a root without any: %+v", a)
	}
	if a := ask(state.Query{Space: state.Pod, Sysctl: "net/ipv4/ip_forward"}); !a.Found {
		t.Errorf("a setting that every kernel has: %+v", a)
	}
}

// TestNamespaceGone: without a namespace nothing is found.
func TestNamespaceGone(t *testing.T) {
	q := state.Query{Space: state.Pod, Link: "eth0"}
	answers, err := observe.Spaces{Host: open(t, nettest.NS(t, "host"))}.Answer(t.Context(), []state.Query{q})
	if _, fromLink := answers[q]; err != nil || !fromLink || answers[q].Found {
		t.Errorf("%+v %v", answers, err)
	}
}

// TestLeastMetricIsDefault: of several default routes the one with the lowest metric is used, without the excluded
// link.
func TestLeastMetricIsDefault(t *testing.T) {
	ns := nettest.NS(t, "host")
	for name, metric := range map[string]string{"a0": "20", "b0": "10", "c0": "30"} {
		nettest.Run(t, ns, "ip", "link", "add", name, "up", "type", "bridge")
		nettest.Run(t, ns, "ip", "route", "add", "default", "dev", name, "metric", metric)
	}
	host := open(t, ns)
	for except, want := range map[string]string{"": "b0", "b0": "a0"} {
		q := state.Query{Space: state.Host, DefaultLink: "4", Except: except}
		answers, err := observe.Spaces{Host: host}.Answer(t.Context(), []state.Query{q})
		if err != nil || answers[q].Link.Name != want {
			t.Errorf("without %q: %q, want %s (%v)", except, answers[q].Link.Name, want, err)
		}
	}
}

// TestLinkOfIsNoHostShim: a host shim has the address of its master, and may be listed before it.
func TestLinkOfIsNoHostShim(t *testing.T) {
	ns := nettest.NS(t, "host")
	for _, name := range []string{state.HostShimPrefix + "1", "b0"} {
		nettest.Run(t, ns, "ip", "link", "add", name, "up", "type", "bridge")
		nettest.Run(t, ns, "ip", "addr", "add", "10.0.0.1/32", "dev", name)
	}
	q := state.Query{Space: state.Host, LinkOf: netip.MustParseAddr("10.0.0.1")}
	answers, err := observe.Spaces{Host: open(t, ns)}.Answer(t.Context(), []state.Query{q})
	if err != nil || answers[q].Link.Name != "b0" {
		t.Errorf("%q, want b0 (%v)", answers[q].Link.Name, err)
	}
}
