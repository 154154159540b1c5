// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

const tuned = `{"type":"tuning","mac":"02:00:00:00:00:77","mtu":1400,"promisc":true,"allmulti":true,"txQLen":55,"dataDir":"DATA/tuning",
	"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1","net.core.somaxconn":"500"}}`

// What the list creates is created as tuning configures it: there is no pre-image of the interface, and no message
// more.
func TestTunedAtCreation(t *testing.T) {
	n := newNode(t)
	for name, plugin := range map[string]string{
		"bridge": bridge, "ptp": `{"type":"ptp","ipam":{"type":"host-local","subnet":"10.8.0.0/24","dataDir":"DATA"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			id, ns := n.pod()
			job := n.job(n.list(plugin, tuned), id, ns)
			result := n.add(job)
			if i := result.Interfaces[len(result.Interfaces)-1]; i.MAC != "02:00:00:00:00:77" || i.MTU != 1400 {
				t.Errorf("result: %+v", i)
			}
			wantTuned(t, ns)
			rec, _, err := n.ledger.Get(job.Request.Key())
			if err != nil {
				t.Fatal(err)
			}
			last := rec.Acts[len(rec.Acts)-1]
			if len(last.Files) > 0 || last.Restore == nil || len(last.Restore.Pod.Links) > 0 ||
				len(last.Restore.Pod.Sysctls) != 1 {
				t.Errorf("pre-image %+v, files %v", last.Restore, last.Files)
			}
			if links := last.Fragment.Pod.Links; len(links) != 1 || links[0].MTU != 1400 || links[0].Kind == "" {
				t.Errorf("links: %v", links)
			}
			nettest.Run(t, ns, "ping", "-c1", "-W20", "10.8.0.1")
			job.Prev = &result
			if err := n.Check(t.Context(), job); err != nil {
				t.Error(err)
			}
			if d := diff(result, n.add(job)); d != "" {
				t.Errorf("the same ADD again: %s", d)
			}
			nettest.Run(t, ns, "ip", "link", "set", "eth0", "mtu", "1399")
			wantCode(t, "CHECK", n.Check(t.Context(), job), 102, "mtu 1399")
			if err := n.Del(t.Context(), job); err != nil {
				t.Error(err)
			}
			if got := nettest.Run(t, ns, "cat", "/proc/sys/net/core/somaxconn"); got != "4096\n" {
				t.Errorf("somaxconn after DEL: %s", got)
			}
			n.clean("DEL")
		})
	}
}

func wantTuned(t *testing.T, ns *netns.NS) {
	t.Helper()
	out := nettest.Run(t, ns, "ip", "-d", "link", "show", "eth0")
	for _, word := range []string{"mtu 1400", "PROMISC", "ALLMULTI", "qlen 55", "02:00:00:00:00:77"} {
		if !strings.Contains(out, word) {
			t.Errorf("%s is missing: %s", word, out)
		}
	}
	if got := nettest.Run(t, ns, "cat", "/proc/sys/net/ipv4/conf/eth0/arp_filter",
		"/proc/sys/net/core/somaxconn"); got != "1\n500\n" {
		t.Errorf("settings: %q", got)
	}
}

// Behind a foreign plugin, and behind IPAM that needs the interface, that interface is there and is changed: the state
// of an interface that another plugin made is restored.
func TestTunedAfterwards(t *testing.T) {
	n := newNode(t)
	n.plugin("looker", looker)
	n.plugin("maker", `
case $CNI_COMMAND in
ADD)
	nsenter --net=$CNI_NETNS ip link add eth0 txqueuelen 1000 type veth peer name other
	echo '{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"'$CNI_NETNS'"}]}';;
DEL) nsenter --net=$CNI_NETNS ip -d link show eth0 > $0.del; nsenter --net=$CNI_NETNS ip link del eth0;;
esac; exit 0`)
	for name, plugin := range map[string]string{
		"late":    `{"type":"bridge","bridge":"abr0","isDefaultGateway":true,"ipam":{"type":"looker"}}`,
		"foreign": `{"type":"maker"}`,
	} {
		t.Run(name, func(t *testing.T) {
			id, ns := n.pod()
			job := n.job(n.list(plugin, tuned), id, ns)
			n.add(job)
			wantTuned(t, ns)
			if err := n.Check(t.Context(), job); err != nil && name == "late" {
				t.Error(err)
			}
			if err := n.Del(t.Context(), job); err != nil {
				t.Error(err)
			}
			if name == "foreign" {
				out := nettest.Run(t, nil, "cat", n.bin+"/maker.del")
				if !strings.Contains(out, "mtu 1500") || !strings.Contains(out, "qlen 1000") || strings.Contains(out, "00:77") ||
					strings.Contains(out, "PROMISC") {
					t.Errorf("at its DEL: %s", out)
				}
			}
			n.clean("DEL")
		})
	}
}

// sources is a list whose interface has its routes in tables of their own, made that way.
func TestRoutedBySourceAtCreation(t *testing.T) {
	n := newNode(t)
	id, ns := n.pod()
	dual := `{"type":"bridge","bridge":"abr0","isDefaultGateway":true,"ipam":{"type":"host-local","dataDir":"DATA",
		"ranges":[[{"subnet":"10.8.0.0/24"}],[{"subnet":"fd00:8::/64"}]],"routes":[{"dst":"172.16.0.0/12"}]}}`
	job := n.job(n.list(dual, `{"type":"sbr"}`), id, ns)
	result := n.add(job)
	for argv, want := range map[string]string{
		"ip route show dev eth0":         "",
		"ip route show table 100":        "default via 10.8.0.1 dev eth0 proto 119 \n10.8.0.0/24 dev eth0 proto 119 scope link src 10.8.0.2 \n172.16.0.0/12 via 10.8.0.1 dev eth0 proto 119 \n",
		"ip -6 route show table 101":     "fd00:8::/64 dev eth0 proto 119 metric 256 pref medium\nfe80::/64 dev eth0 proto 119 metric 256 pref medium\ndefault via fd00:8::1 dev eth0 proto 119 metric 1024 pref medium\n",
		"ip -6 route show dev eth0":      "fe80::/64 proto kernel metric 256 pref medium\n",
		"ip rule show from 10.8.0.2":     "32765:\tfrom 10.8.0.2 lookup 100 proto 119\n",
		"ip -6 rule show from fd00:8::2": "32765:\tfrom fd00:8::2 lookup 101 proto 119\n",
	} {
		if got := nettest.Run(t, ns, strings.Fields(argv)...); got != want {
			t.Errorf("%s: %q, want %q", argv, got, want)
		}
	}
	nettest.Run(t, ns, "ping", "-c1", "-W20", "-I", "10.8.0.2", "10.8.0.1")
	nettest.Run(t, ns, "ping", "-c1", "-W20", "-I", "fd00:8::2", "fd00:8::1")
	job.Prev = &result
	if err := n.Check(t.Context(), job); err != nil {
		t.Error(err)
	}
	nettest.Run(t, ns, "ip", "rule", "del", "from", "10.8.0.2")
	wantCode(t, "CHECK", n.Check(t.Context(), job), 102, "from 10.8.0.2/32")
	if err := n.Del(t.Context(), job); err != nil {
		t.Error(err)
	}
	if out := nettest.Run(t, ns, "ip", "-6", "rule"); strings.Contains(out, "fd00") {
		t.Errorf("rules are left: %s", out)
	}
	n.clean("DEL")
}

// lent is a list that moves a device of the node into the container and tunes it there.
const lent = `{"type":"host-device","device":"card","ipam":{"type":"host-local","subnet":"10.8.0.0/24","dataDir":"DATA"}}`

// A device that was lent comes back as it was, wherever the ADD or the DEL was cut, by DEL, by a restarted agent or by
// GC.
func TestLentAndCut(t *testing.T) {
	n := newNode(t)
	nettest.Run(t, nil, "ip", "link", "add", "card", "address", "02:00:00:00:00:05", "mtu", "1450", "type", "veth", "peer",
		"name", "wire")
	defer func() { nettest.Run(t, nil, "ip", "link", "del", "card"); n.clean("the end") }()
	for _, argv := range []string{
		"ip link set wire up", "ip link set card up alias uplink", "ip addr add 192.0.2.5/24 dev card",
		"ip route add 198.51.100.0/24 via 192.0.2.1 dev card",
	} {
		nettest.Run(t, nil, strings.Fields(argv)...)
	}
	observed := func() string {
		return nettest.Run(t, nil, "ip", "-d", "link", "show", "card") +
			nettest.Run(t, nil, "ip", "-4", "addr", "show", "card") +
			nettest.Run(t, nil, "ip", "route", "show", "dev", "card")
	}
	id, ns := n.pod()
	conf := n.list(lent, tuned)
	job := n.job(conf, id, ns)
	before := observed()
	n.add(job)
	wantTuned(t, ns)
	if err := n.Del(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	back := func(what string) {
		t.Helper()
		n.drain()
		if got := observed(); got != before {
			t.Errorf("%s:\n%s\nbefore:\n%s", what, got, before)
		}
		if list, err := n.ledger.List(); err != nil || len(list) > 0 || len(n.reserved()) > 0 {
			t.Errorf("%s: records %d, addresses %v, %v", what, len(list), n.reserved(), err)
		}
	}
	back("DEL")
	adds, dels := n.stepsOf(job)
	for i := range adds {
		for how, undo := range map[string]func() error{
			"DEL": func() error { return n.Del(t.Context(), job) },
			"restart": func() error {
				n.Attacher = attach.New(n.cfg)
				_, err := n.Recover(t.Context())
				if adds[i] == "after done" { // it stays
					err = errors.Join(err, n.Check(t.Context(), job), n.Del(t.Context(), job))
				}
				return err
			},
			"GC": func() error { return n.GC(t.Context(), job, nil) },
		} {
			if _, err := n.cutAt(i).Add(t.Context(), job); !errors.Is(err, errCut) {
				t.Fatalf("cut at %s: %v", adds[i], err)
			}
			if err := undo(); err != nil {
				t.Errorf("ADD cut at %s, %s: %v", adds[i], how, err)
			}
			back("ADD cut at " + adds[i] + ", " + how)
		}
	}
	for i := range dels {
		n.add(job)
		if err := n.cutAt(i).Del(t.Context(), job); !errors.Is(err, errCut) && slices.Index(dels, dels[i]) < i {
			t.Fatalf("DEL cut at %s: %v", dels[i], err)
		}
		if err := n.Del(t.Context(), job); err != nil {
			t.Errorf("DEL cut at %s: %v", dels[i], err)
		}
		back("DEL cut at " + dels[i])
	}
	if len(adds) < 6 || len(dels) < 6 {
		t.Errorf("steps: %v, %v", adds, dels)
	}
}

// stepsOf are the names of the steps of an ADD and of its DEL.
func (n *node) stepsOf(job attach.Job) (adds, dels []string) {
	n.t.Helper()
	cfg, list := n.cfg, &adds
	cfg.Failpoint = func(name string) error { *list = append(*list, name); return nil }
	a := attach.New(cfg)
	if _, err := a.Add(n.t.Context(), job); err != nil {
		n.t.Fatal(err)
	}
	list = &dels
	if err := errors.Join(a.Del(n.t.Context(), job), a.Drain(n.t.Context())); err != nil {
		n.t.Fatal(err)
	}
	return adds, dels
}

// cutAt is cut, at the step of that number.
func (n *node) cutAt(at int) *attach.Attacher {
	cfg, i := n.cfg, 0
	cfg.Failpoint = func(string) error {
		if i++; i > at {
			return errCut
		}
		return nil
	}
	return attach.New(cfg)
}

// A device is moved to the pod before its addresses are known: they are released while it is still there.
func TestLentBeforeItsAddresses(t *testing.T) {
	n := newNode(t)
	n.plugin("looker", looker)
	nettest.Run(t, nil, "ip", "link", "add", "card", "type", "veth", "peer", "name", "wire")
	nettest.Run(t, nil, "ip", "link", "set", "wire", "up")
	nettest.Run(t, nil, "ip", "addr", "add", "192.0.2.5/24", "dev", "card")
	id, ns := n.pod()
	job := n.job(n.list(`{"type":"host-device","device":"card","ipam":{"type":"looker"}}`, tuned, `{"type":"sbr"}`), id,
		ns)
	result := n.add(job)
	wantTuned(t, ns)
	if out := nettest.Run(t, ns, "ip", "route", "show", "table", "100"); !strings.Contains(out,
		"default via 10.8.0.1 dev eth0") || !strings.Contains(out, "10.8.0.0/24") {
		t.Errorf("table: %s", out)
	}
	if out := nettest.Run(t, ns, "ip", "route", "show"); out != "" {
		t.Errorf("main table: %s", out)
	}
	job.Prev = &result
	if err := n.Check(t.Context(), job); err != nil {
		t.Error(err)
	}
	if err := n.Del(t.Context(), job); err != nil {
		t.Error(err)
	}
	if out := nettest.Run(t, nil, "cat", n.bin+"/looker.del"); !strings.Contains(out, "eth0") ||
		strings.Contains(out, "does not exist") {
		t.Errorf("the device was gone before its addresses were given back: %s", out)
	}
	if out := nettest.Run(t, nil, "ip", "-o", "addr", "show", "card"); !strings.Contains(out, "192.0.2.5/24") {
		t.Errorf("the card: %s", out)
	}
	nettest.Run(t, nil, "ip", "link", "del", "card")
	n.clean("DEL")
}
