// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/reader"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/kernel/sysctl"
	"github.com/weft-net/weft/internal/kernel/tc"
	"github.com/weft-net/weft/internal/state"
)

// The parts of a view compare and write without a kernel: tests set the objects found, and check the requests.

// requests prints a batch.
func requests(batch []*rtnl.Message) string {
	var out []string
	for _, m := range batch {
		out = append(out, m.Verb+" "+m.About.String())
	}
	return strings.Join(out, "\n")
}

func saysRequests(t *testing.T, batch []*rtnl.Message, want ...string) {
	t.Helper()
	if got := requests(batch); got != strings.Join(want, "\n") {
		t.Errorf("requests:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

// differences returns the differences that a part reports.
func differences(p part) []state.Difference {
	out := diffs{space: state.Host}
	p.diff(&out)
	return out.all
}

// with returns links: eth0 has index 7 and existed before, net1 has index 9 and was just made.
func with(t *testing.T) *links {
	t.Helper()
	l := newLinks()
	l.found["eth0"] = link.Found{Link: state.Link{Name: "eth0"}, Index: 7}
	l.put(state.Link{Name: "net1", Kind: state.Bridge, MTU: 1400}, 9, 0)
	return l
}

func TestLinks(t *testing.T) {
	l := with(t)
	if _, old := l.old("net1"); old {
		t.Error("a link that was just made is told to have been there")
	}
	if _, old := l.old("eth0"); !old || l.index("net1") != 9 || l.index("nolink") != 0 {
		t.Errorf("eth0 was there: %t, net1 has index %d, a missing one %d", old, l.index("net1"), l.index("nolink"))
	}
	if l.found["net1"].MTU != 0 {
		t.Error("a bridge with the MTU that it was made with would not follow its ports")
	}
	if l.allMade([]string{"net1", "eth0"}) || !l.allMade([]string{"net1"}) {
		t.Error("eth0 was not made here, net1 was")
	}
	if named := l.named(link.Found{MasterIndex: 9}); named.Master != "net1" {
		t.Errorf("master of index 9 is %q", named.Master)
	}
	l.found["gone"] = link.Found{Group: ReaperGroup}
	if l.withoutDead(); len(l.found) != 2 {
		t.Errorf("%d links are left of two living ones and a dead one", len(l.found))
	}
}

func TestAddrs(t *testing.T) {
	has := func(s string) link.FoundAddr { return link.FoundAddr{Addr: state.Addr{Prefix: prefix(s)}, Index: 7} }
	failed := has("fd00::9/64")
	failed.Failed = true
	a := &addrs{
		links: with(t), found: map[string][]link.FoundAddr{"eth0": {has("10.0.0.1/24"), has("10.0.0.2/24"), failed}},
		want: []state.Addr{
			{Link: "eth0", Prefix: prefix("10.0.0.1/24")},
			{Link: "eth0", Prefix: prefix("10.0.0.2/24"), Absent: true},
			{Link: "eth0", Prefix: prefix("10.0.0.3/24")},
			{Link: "eth0", Prefix: prefix("fd00::9/64")},
		},
	}
	saysRequests(t, a.batch(),
		"delete addr 10.0.0.2/24 dev ", "delete addr fd00::9/64 dev ", // as the found address prints itself
		"add addr 10.0.0.3/24 dev eth0", "add addr fd00::9/64 dev eth0")
	if !slices.Equal(a.fresh6, []string{"eth0"}) {
		t.Errorf("links with a new IPv6 address: %v", a.fresh6)
	}
	if d := differences(a); len(d) != 3 || !strings.Contains(fmt.Sprint(d), "another host has it") {
		t.Errorf("differences: %v", d)
	}
	if groups := a.groups("eth0"); !groups[addr("ff02::1:ff00:9")] || len(groups) != 1 {
		t.Errorf("solicited in %v", groups)
	}
	only4 := a.removal(func(a state.Addr) bool { return a.Prefix.Addr().Is4() })
	saysRequests(t, only4, "delete addr 10.0.0.1/24 dev eth0", "delete addr 10.0.0.3/24 dev eth0")
}

func TestNeighs(t *testing.T) {
	mac := state.MAC{2, 0, 0, 0, 0, 1}
	ip, other := addr("10.0.0.7"), addr("10.0.0.8")
	n := &neighs{
		links: with(t), found: map[neighPlace]link.FoundNeigh{
			{7, ip, false}:    {Neigh: state.Neigh{IP: ip, MAC: mac}, Index: 7, Permanent: true},
			{7, other, false}: {Neigh: state.Neigh{IP: other, MAC: mac}, Index: 7}, // learned
		},
		want: []state.Neigh{{Link: "eth0", IP: ip, MAC: mac}, {Link: "eth0", IP: other, MAC: mac}},
	}
	if batch := slices.Collect(n.missing()); len(batch) != 1 || !strings.Contains(requests(batch), "10.0.0.8") {
		t.Errorf("one that was learned is written, one that is permanent is not: %s", requests(batch))
	}
	if d := differences(n); len(d) != 1 {
		t.Errorf("differences: %v", d)
	}
	n.forget(7)
	if batch := slices.Collect(n.missing()); len(batch) != 2 {
		t.Errorf("the kernel forgot both: %s", requests(batch))
	}
	stays := func(name string) (int, bool) { return 7, name != "eth0" }
	saysRequests(t, n.removal(stays))
}

func TestFDBs(t *testing.T) {
	mac, dst := state.MAC{2, 0, 0, 0, 0, 1}, addr("192.0.2.1")
	entry := state.FDB{Link: "eth0", MAC: mac, Dst: dst}
	moved := entry
	moved.Dst = addr("192.0.2.2")
	for _, tc := range []struct {
		want  state.FDB
		wrote int
	}{{entry, 0}, {moved, 1}} {
		f := &fdbs{
			links: with(t), want: []state.FDB{tc.want},
			found: map[string]map[state.MAC]link.FoundFDB{"eth0": {mac: {FDB: entry, Index: 7, Permanent: true}}},
		}
		if batch := slices.Collect(f.missing()); len(batch) != tc.wrote || len(differences(f)) != tc.wrote {
			t.Errorf("%s where there is %s: %s", tc.want, entry, requests(batch))
		}
		var out state.Space
		if f.report(&out); len(out.FDBs) != 1 || out.FDBs[0] != entry {
			t.Errorf("told %v, have %v", out.FDBs, entry)
		}
	}
}

func TestRules(t *testing.T) {
	mine, shared := state.Rule{From: prefix("10.0.0.1/32"), Table: 100, Priority: 5},
		state.Rule{From: prefix("10.0.0.2/32"), Table: 100, Priority: 5, Shared: true}
	r := &rules{want: []state.Rule{mine, shared}, found: []link.FoundRule{{Rule: link.NormalRule(mine)}}}
	saysRequests(t, r.batch(), "add "+shared.String())
	saysRequests(t, r.removal(), "delete "+mine.String())
}

// A differing route of ours is deleted before the new one is added, another owner's is refused, and the route to a
// gateway comes first.
func TestRoutes(t *testing.T) {
	dst, gw := prefix("10.1.0.0/16"), addr("10.0.0.254")
	via := state.Route{Dst: dst, Gw: gw, Link: "eth0", Metric: 5}
	wayTo := state.Route{Dst: prefix("10.0.0.254/32"), Link: "eth0", Metric: 5}
	there := func(r state.Route, protocol uint8) link.FoundRoute {
		r = link.Normal(r)
		r.Protocol, r.Link = protocol, ""
		return link.FoundRoute{Route: r, Index: 7, Nexthops: 1 + len(r.NextHops)}
	}
	other := via
	other.Gw = addr("10.0.0.253")
	table := func(wants []state.Route, found ...link.FoundRoute) *routes {
		r := &routes{want: wants, links: with(t), found: map[routePlace][]link.FoundRoute{}}
		r.add(found)
		return r
	}
	batch := func(r *routes) []*rtnl.Message {
		t.Helper()
		b, err := r.batch()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	saysRequests(t, batch(table([]state.Route{via, wayTo})), "add "+wayTo.String(), "add "+via.String())
	saysRequests(t, batch(table([]state.Route{via}, there(via, Protocol))))
	replaced := batch(table([]state.Route{via}, there(other, Protocol)))
	if got := requests(replaced); len(replaced) != 2 ||
		!strings.HasPrefix(got, "delete route 10.1.0.0/16 via 10.0.0.253") || !strings.HasSuffix(got, "add "+via.String()) {
		t.Errorf("one of ours that differs: %s", got)
	}
	if _, err := table([]state.Route{via}, there(other, unix.RTPROT_BOOT)).batch(); err == nil {
		t.Error("another one's route was replaced")
	}
	absent := other
	absent.Absent = true
	if got := requests(batch(table([]state.Route{via, absent}, there(other, unix.RTPROT_BOOT)))); !strings.HasPrefix(got,
		"delete") || !strings.HasSuffix(got, "add "+via.String()) {
		t.Errorf("another one's route that must not be there makes place: %s", got)
	}
	if askable(state.Route{Dst: dst, Link: "eth0", Metric: 5, Table: 100}) || !askable(via) {
		t.Error("a route of another table cannot be asked for, one of the main table can")
	}
	stays := func(name string) (int, bool) { return 0, false }
	saysRequests(t, table([]state.Route{via, {Dst: dst, Metric: 5}}).removal(stays),
		"delete "+state.Route{Dst: dst, Metric: 5}.String())
}

func TestLinkSettings(t *testing.T) {
	on, mac := true, state.MAC{2, 0, 0, 0, 0, 1}
	l := with(t)
	have := l.found["eth0"]
	have.MTU, have.Kind = 1200, state.Veth
	l.found["eth0"] = have
	want := state.Link{Name: "eth0", Kind: state.Veth, MTU: 1500, MAC: mac, Master: "net1", Up: &on}
	s := &linkSettings{want: []state.Link{want}, links: l, vlans: &portVLANs{links: l}}
	batch, readdressed, err := s.batch()
	if err != nil || len(batch) != 1 || !slices.Equal(readdressed, []int{7}) || !s.ipv6Reset {
		t.Errorf("%s; links with another address %v, IPv6 comes back %t, %v", requests(batch), readdressed, s.ipv6Reset, err)
	}
	if len(s.upBatch(func(state.Link) bool { return true })) != 1 || len(s.readBatch()) != 2 {
		t.Errorf("came up: %v, asked for %s", s.raised, requests(s.readBatch()))
	}
	if !s.isUp("eth0") || s.isUp("net1") {
		t.Error("eth0 comes up, net1 does not")
	}
	if d := differences(s); len(d) != 1 {
		t.Errorf("differences: %v", d)
	}
	have.MTU, have.MAC, have.MasterIndex, have.Up = 1500, mac, 9, &on
	l.found["eth0"] = have
	if d := differences(s); len(d) != 0 {
		t.Errorf("differences of what is as wanted: %v", d)
	}
	s.want[0].Peer = &state.Peer{Space: state.Pod, Name: "eth0"}
	s.others = func(state.SpaceName) map[string]link.Found { return map[string]link.Found{} }
	if d := differences(s); len(d) != 1 {
		t.Errorf("an other end that is missing: %v", d)
	}
}

// A setting of a link is read from the link's message rather than a file, and one of a new link is written without
// reading.
func TestSysctlsOfLinks(t *testing.T) {
	l := with(t)
	have := l.found["eth0"]
	have.AddrGenMode = 1
	l.found["eth0"] = have
	mode := func(name, value string) state.Sysctl {
		return state.Sysctl{Name: "net/ipv6/conf/" + name + "/" + sysctl.AddrGenMode, Value: value}
	}
	s := &sysctls{want: []state.Sysctl{mode("eth0", "1"), mode("net1", "1")}, links: l, values: map[string]sysctl.Value{}}
	batch, err := s.linkBatch()
	if err != nil || len(batch) != 1 || !strings.Contains(requests(batch), "net1") {
		t.Errorf("%s %v", requests(batch), err)
	}
	s.want[0].Value = "0"
	if d := differences(s); len(d) != 2 || d[0].Have != "1" {
		t.Errorf("differences: %v", d)
	}
	s.want = []state.Sysctl{{Name: "net/ipv4/conf/eth0/arp_notify", Value: "1"}}
	if !s.notifies("eth0") || s.notifies("net1") {
		t.Error("eth0 is to say its addresses, net1 is not")
	}
}

func TestQdiscs(t *testing.T) {
	l := with(t)
	want := state.Qdisc{Link: "eth0", Kind: state.Ingress, Redirect: "net1"}
	q := &qdiscs{
		want: []state.Qdisc{
			want,
		}, links: l, found: map[string]reader.Queues{"eth0": {Filters: []tc.FoundFilter{{Ours: true, To: 9}}}},
	}
	if batch, err := q.batch(); err != nil || len(batch) > 0 || len(differences(q)) > 0 {
		t.Errorf("what is as wanted is written: %s %v", requests(batch), err)
	}
	q.found["eth0"] = reader.Queues{Filters: []tc.FoundFilter{{Ours: true, To: 8}}}
	if batch, err := q.batch(); err != nil || len(batch) < 2 || !strings.HasPrefix(batch[0].Verb, "delete") {
		t.Errorf("a filter that leads elsewhere goes first: %s %v", requests(batch), err)
	}
	q.want[0].Redirect = "nolink"
	if _, err := q.batch(); err == nil {
		t.Error("a redirection to a link that is not there")
	}
}

// Any method counts for a join, unless one is wanted.
func TestJoins(t *testing.T) {
	j := &joins{space: state.Pod, links: with(t), found: map[string]state.JoinMethod{"tap0": state.JoinMirred}}
	for how, equal := range map[state.JoinMethod]bool{"": true, state.JoinMirred: true, state.JoinForward: false} {
		j.want = []state.Join{{Tap: "tap0", Link: "eth0", Method: how}}
		if d := differences(j); (len(d) == 0) != equal {
			t.Errorf("done by mirred, wanted by %q: %v", how, d)
		}
	}
	j.wantLinks = []state.Link{
		{Name: "net1", Peer: &state.Peer{Space: state.Host}}, {Name: "eth0", Peer: &state.Peer{Space: state.Host}},
	}
	if !j.peerInOtherSpace("net1") || j.peerInOtherSpace("eth0") {
		t.Error("net1 was just made as an end of a pair between the namespaces, eth0 was there")
	}
}

// TestManyRoutes: planning the requests for ten times as many routes costs ten times as much and not a hundred times,
// also if one is to be absent: the memory allocated is counted, which depends on no other load.
func TestManyRoutes(t *testing.T) {
	for _, absent := range []bool{false, true} {
		cost := func(n int) float64 {
			r := &routes{links: with(t), found: map[routePlace][]link.FoundRoute{}}
			for i := range n {
				r.want = append(r.want, state.Route{
					Dst: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24), Link: "eth0",
					Gw: addr("10.0.0.254"), Metric: uint32(100 + i), Absent: absent && i == 0,
				})
			}
			r.add([]link.FoundRoute{{Route: link.Normal(r.want[0]), Index: 7, Nexthops: 1}})
			return testing.AllocsPerRun(1, func() {
				r.sharing = nil
				if _, err := r.batch(); err != nil {
					t.Error(err)
				}
			})
		}
		if few, many := cost(100), cost(1000); many > 15*few {
			t.Errorf("absent %v: %.0f allocations for 100 routes, %.0f for 1,000", absent, few, many)
		}
	}
}
