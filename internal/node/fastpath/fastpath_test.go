// SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/fastpath"
	"github.com/weft-net/weft/internal/kernel/sysctl"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/preimage"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// record is the record of a routed pod.
func record(name string) attach.Record {
	pod := 0
	return attach.Record{
		Stage: attach.Done,
		Request: model.Request{
			ContainerID: name, IfName: "eth0", Network: "weft",
			Args: [][2]string{{"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", name}},
		},
		Acts: []attach.Act{{Kind: attach.ActApply, Fragment: &state.Fragment{Host: state.Space{Links: []state.Link{{
			Name: "cali" + name, Kind: state.Veth, Peer: &state.Peer{Space: state.Pod, Name: "eth0"},
		}}}}}},
		Result: &model.Result{
			Interfaces: []model.Interface{{Name: "eth0", Sandbox: "/run/netns/" + name}},
			IPs:        []model.IP{{Interface: &pod, Address: netip.MustParsePrefix("10.0.0.1/32")}},
		},
	}
}

// Links are those of routed pods and of guests whose packets nothing counts or limits.
func TestPods(t *testing.T) {
	for name, change := range map[string]func(*attach.Record){
		"routed":      func(*attach.Record) {},
		"pending":     func(r *attach.Record) { r.Stage = attach.Pending },
		"standby":     func(r *attach.Record) { r.Standby = true },
		"port":        func(r *attach.Record) { r.Acts[0].Fragment.Host.Links[0].Master = "cni0" },
		"no pod":      func(r *attach.Record) { r.Request.Args = nil },
		"unaddressed": func(r *attach.Record) { r.Result = nil },
		"a VM":        func(r *attach.Record) { r.Request.Args = append(r.Request.Args, [2]string{"WEFT_VM", "shop/a"}) },
		"macvtap": func(r *attach.Record) {
			r.Acts[0].Fragment.Host.Links[0].Kind = state.Macvtap
		},
		"tap": func(r *attach.Record) {
			l := &r.Acts[0].Fragment.Host.Links[0]
			l.Kind, l.Peer, l.Alias = state.Tap, nil, "weft:a"
			r.Acts[0].Fragment.Pod.Links = []state.Link{{Name: "eth0", Alias: "weft:a"}}
		},
		"packets are limited": func(r *attach.Record) {
			r.Acts[0].Fragment.Host.Tables = []state.Table{{Family: "inet", Name: "weft_qos", Sets: []state.Set{{
				Name: "packets_in", Elements: []state.Element{{Key: []string{"x"}, Stateful: "limit rate over 5/second"}},
			}}}}
		},
		"in a set": func(r *attach.Record) {
			r.Acts[0].Fragment.Host.Tables = []state.Table{{Family: "inet", Name: "weft_source", Sets: []state.Set{{
				Name: "links", Elements: []state.Element{{Key: []string{"x"}}},
			}}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := record("a")
			change(&r)
			got, want := pods([]attach.Record{r}), 0
			if slices.Contains([]string{"routed", "in a set", "a VM", "tap"}, name) {
				want = 1
			}
			how := fastpath.ToPeer
			if name == "tap" {
				how = fastpath.ToTap
			}
			if len(got) != want || want == 1 && (got[0].Name != "calia" || len(got[0].Addrs) != 1 || got[0].How != how) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// Uplinks are links with Ethernet headers: the underlay, and devices of VXLANs.
func TestUplinks(t *testing.T) {
	peer := func(links ...string) *mesh.Peer {
		p := &mesh.Peer{Name: "p"}
		var s state.Space
		for _, l := range links {
			s.Routes = append(s.Routes, state.Route{Link: l})
		}
		p.SetHost(s, nil)
		return p
	}
	got := uplinks(mesh.Topology{
		Underlay: []mesh.Underlay{{Link: "eth0"}, {Link: "eth1"}},
		Node:     state.Fragment{Host: state.Space{Links: []state.Link{{Name: "flannel.1", VXLAN: &state.VXLANAttrs{}}, {Name: "flannel-wg"}}}},
		Peers:    []*mesh.Peer{peer("flannel.1"), peer("eth0", "flannel-wg"), peer("eth0")},
	})
	if want := []string{"eth0", "flannel.1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// attachments are the records of a test.
type attachments []attach.Record

func (a attachments) List() ([]attach.Record, error) { return a, nil }
func (attachments) Version() uint64                  { return 1 }

func ip(t *testing.T, ns *netns.NS, line string) {
	t.Helper()
	nettest.Run(t, ns, append([]string{"ip"}, strings.Fields(line)...)...)
}

// While a trace holds the path it is not used; an agent without it restores the setting of conntrack, one that was killed
// has left it recorded. Without the setting being recorded there is no fast path.
func TestRun(t *testing.T) {
	probe, err := fastpath.Load(nil)
	if err != nil {
		nettest.Skip(t, "no fast path: "+err.Error())
	}
	if err := probe.Close(); err != nil {
		t.Fatal(err)
	}
	ns, pod := nettest.NS(t, "node"), nettest.NS(t, "pod")
	ip(t, ns, "link add calia type veth peer name eth0 netns "+pod.Path())
	ip(t, ns, "link set calia up")
	nettest.Run(t, ns, "nft", "add table inet t; add chain inet t c { type filter hook forward priority 0; }; add rule inet t c ct state new accept")
	nettest.Run(t, ns, "sysctl", "-qw", "net.netfilter.nf_conntrack_tcp_be_liberal=0", "net.netfilter.nf_conntrack_acct=0")
	liberal := func() string {
		return strings.TrimSpace(nettest.Run(t, ns, "sysctl", "-n", "net.netfilter.nf_conntrack_tcp_be_liberal"))
	}
	host, err := kernel.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Close() }()
	settings, err := preimage.Open(t.TempDir(), "boot")
	if err != nil {
		t.Fatal(err)
	}
	start := func(mode string, s Settings) (f *FastPath, stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		f = New(Config{
			Mode: mode, NS: ns, Host: host, Records: attachments{record("a")}, Settings: s,
			Log: slog.New(slog.DiscardHandler), After: time.After,
		})
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		return f, func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	until := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	f, stop := start(EBPF, settings)
	until("it is not used", func() bool { s := f.Status(); return s.Used && slices.Equal(s.Links, []string{"calia"}) })
	if s := f.Status(); !s.Liberal || liberal() != "1" {
		t.Errorf("%+v, nf_conntrack_tcp_be_liberal is %s", s, liberal())
	}
	release := f.Hold()
	if s := f.Status(); s.Used || s.Reason != "a trace is running" {
		t.Errorf("%+v", s)
	}
	release()
	if s := f.Status(); !s.Used {
		t.Errorf("%+v", s)
	}
	nettest.Run(t, ns, "sysctl", "-qw", "net.netfilter.nf_conntrack_acct=1")
	until("it is used while packets are counted", func() bool { return !f.Status().Used })
	ip(t, ns, "link del calia")
	until("a link that is gone", func() bool { return len(f.Status().Links) == 0 })
	stop()
	if liberal() != "1" {
		t.Error("the setting is restored though the next agent may need it")
	}
	f, stop = start(Off, settings)
	until("the setting is not restored", func() bool { return liberal() == "0" && !f.Status().Liberal })
	stop()
	f, stop = start(EBPF, nil)
	until("it is used without a record", func() bool { return strings.Contains(f.Status().Reason, "cannot be recorded") })
	stop()
}

// A way that the kernel lacks is refused with its name and the reason, auto takes the first one that it has, and a flowtable
// leaves nothing when it is off and needs no setting of conntrack.
func TestWays(t *testing.T) {
	ns, pod := nettest.NS(t, "node"), nettest.NS(t, "pod")
	ip(t, ns, "link add calia type veth peer name eth0 netns "+pod.Path())
	ip(t, ns, "link set calia up")
	nettest.Run(t, ns, "nft", "add table inet t; add chain inet t c { type filter hook forward priority 0; }; add rule inet t c ct state new accept")
	nettest.Run(t, ns, "sysctl", "-qw", "net.netfilter.nf_conntrack_tcp_be_liberal=0", "net.netfilter.nf_conntrack_acct=0")
	host, err := kernel.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Close() }()
	settings, err := preimage.Open(t.TempDir(), "boot")
	if err != nil {
		t.Fatal(err)
	}
	works := map[string]error{}
	e, err := fastpath.Load(ns)
	if works[EBPF] = err; err == nil {
		_ = e.Close()
	}
	f, err := fastpath.LoadFlowtable(ns)
	if works[Flowtable] = err; err == nil {
		_ = f.Close()
	}
	tables := func() bool {
		return strings.Contains(nettest.Run(t, ns, "nft", "list", "ruleset"), fastpath.FlowTable)
	}
	for _, mode := range []string{EBPF, Flowtable, Auto} {
		t.Run(mode, func(t *testing.T) {
			way := mode
			if mode == Auto {
				way = EBPF
				if works[EBPF] != nil {
					way = Flowtable
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			f := New(Config{
				Mode: mode, NS: ns, Host: host, Records: attachments{record("a")}, Settings: settings,
				Log: slog.New(slog.DiscardHandler), After: time.After,
			})
			done := make(chan error, 1)
			go func() { done <- f.Run(ctx) }()
			is := func() Status {
				t.Helper()
				for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
					s := f.Status()
					if s.Used && slices.Equal(s.Links, []string{"calia"}) || s.Reason != "" && s.Reason != "the agent has just started" {
						return s
					}
					if time.Now().After(end) {
						t.Fatalf("%+v", s)
					}
				}
			}()
			t.Logf("%+v", is)
			switch {
			case works[way] != nil:
				if is.Used || !strings.Contains(is.Reason, works[way].Error()) || mode == Auto && !strings.Contains(is.Reason, works[EBPF].Error()) {
					t.Errorf("%+v, want the reason %v", is, works[way])
				}
			case is.Way != way || mode == Auto && way == Flowtable && !strings.Contains(is.Lacks, works[EBPF].Error()):
				t.Errorf("%+v, want %s", is, way)
			}
			if works[way] == nil && tables() != (way == Flowtable) {
				t.Errorf("%+v, tables: %t", is, tables())
			}
			for end := time.Now().Add(30 * time.Second); f.Status().Liberal != (works[way] == nil && way == EBPF); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%+v", f.Status())
				}
			}
			if works[way] == nil && way == Flowtable {
				// nft lists the source MAC address of a frame as raw bytes. The addresses that the source guard permits are those of the link, also another one that a guest begins to use.
				for _, mac := range []string{"02:00:00:00:00:01", "02:00:00:00:00:02"} {
					nettest.Run(t, ns, "nft", "add table inet weft_source; add set inet weft_source own4 { type ifname . ether_addr . ipv4_addr; };"+
						"add element inet weft_source own4 { calia . "+mac+" . 10.0.0.1 }")
					for end := time.Now().Add(30 * time.Second); !strings.Contains(nettest.Run(t, ns, "nft", "list", "ruleset"),
						"0x2000000000"+mac[len(mac)-1:]+" accept"); time.Sleep(10 * time.Millisecond) {
						if time.Now().After(end) {
							t.Fatalf("%s is not permitted:\n%s", mac, nettest.Run(t, ns, "nft", "list", "ruleset"))
						}
					}
				}
				nettest.Run(t, ns, "sysctl", "-qw", "net.netfilter.nf_conntrack_udp_timeout_stream=40")
				for end := time.Now().Add(30 * time.Second); tables() || !strings.Contains(f.Status().Reason, "is 40: "); time.Sleep(10 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("conntrack's timeout is shorter than it may be: %+v", f.Status())
					}
				}
				nettest.Run(t, ns, "sysctl", "-qw", "net.netfilter.nf_conntrack_udp_timeout_stream=120")
				for end := time.Now().Add(30 * time.Second); !tables(); time.Sleep(10 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("%+v", f.Status())
					}
				}
				release := f.Hold()
				if tables() {
					t.Error("there are flows while a trace runs")
				}
				if release(); !tables() {
					t.Error("there are no flows after a trace")
				}
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			for end := time.Now().Add(30 * time.Second); tables(); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("tables are left")
				}
			}
		})
	}
}

// The MAC addresses of links are those that the source guard has in force.
func TestGuarded(t *testing.T) {
	ns := nettest.NS(t, "node")
	host, err := kernel.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Close() }()
	f := New(Config{Mode: Flowtable, NS: ns, Host: host, Log: slog.New(slog.DiscardHandler)})
	if got, err := f.guarded(t.Context()); err != nil || len(got) > 0 {
		t.Fatal(got, err)
	}
	nettest.Run(t, ns, "nft", "add table inet weft_source; add set inet weft_source own4 { type ifname . ether_addr . ipv4_addr; };"+
		"add set inet weft_source links { type ifname; }; add element inet weft_source links { calia };"+
		"add element inet weft_source own4 { calia . 02:00:00:00:00:02 . 10.0.0.1, calia . 02:00:00:00:00:01 . 10.0.0.1 }")
	got, err := f.guarded(t.Context())
	if err != nil || len(got) != 1 || !slices.Equal(got["calia"], []string{"02:00:00:00:00:01", "02:00:00:00:00:02"}) {
		t.Error(got, err)
	}
}

// A flowtable whose timeout takes too much of that of conntrack is not used, and the reason names both settings.
func TestEarly(t *testing.T) {
	const flowUDP, flowTCP = "net/netfilter/nf_flowtable_udp_timeout", "net/netfilter/nf_flowtable_tcp_timeout"
	const udp, tcp = "net/netfilter/nf_conntrack_udp_timeout_stream", "net/netfilter/nf_conntrack_tcp_timeout_established"
	with := func(pairs ...string) map[string]sysctl.Value {
		out := map[string]sysctl.Value{flowUDP: {Text: "30"}, flowTCP: {Text: "30"}, udp: {Text: "120"}, tcp: {Text: "432000"}}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = sysctl.Value{Text: pairs[i+1], Missing: pairs[i+1] == ""}
		}
		return out
	}
	for _, c := range []struct {
		values map[string]sysctl.Value
		want   string
	}{
		{with(), ""},
		{with(udp, "60"), ""},
		{with(udp, "59"), "net.netfilter.nf_conntrack_udp_timeout_stream is 59: an entry of conntrack loses 30 of these seconds when " +
			"its flow leaves the flowtable; set it to 60 or more, or net.netfilter.nf_flowtable_udp_timeout to 29 or less"},
		{with(udp, "59", flowUDP, "29"), ""},
		{with(tcp, "10"), "net.netfilter.nf_conntrack_tcp_timeout_established is 10: an entry of conntrack loses 30 of these seconds " +
			"when its flow leaves the flowtable; set it to 60 or more, or net.netfilter.nf_flowtable_tcp_timeout to 5 or less"},
		{with(udp, "10", flowUDP, ""), ""},
	} {
		if got := early(c.values); got != c.want {
			t.Errorf("%v: %q, want %q", c.values, got, c.want)
		}
	}
}
