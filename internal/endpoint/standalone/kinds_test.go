// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// uplink creates a link of the node to a network with a router, and returns the router's namespace.
func (h *host) uplink() *netns.NS {
	h.t.Helper()
	_, _ = nettest.Try(nil, "ip", "link", "del", "ens5")
	lan := nettest.NS(h.t, "lan")
	ipLines(h.t, nil, "link add ens5 address 02:00:00:00:00:05 mtu 1450 type veth peer name wire mtu 1450 netns "+
		lan.Path(), "link set ens5 up",
		"link property add dev ens5 altname the-uplink-of-the-node", "addr add 10.7.0.254/24 dev ens5",
		"route add default via 10.7.0.1 dev ens5")
	ipLines(h.t, lan, "link set wire up", "addr add 10.7.0.1/24 dev wire", "addr add fd00:7::1/64 dev wire nodad")
	h.t.Cleanup(func() { _, _ = nettest.Try(nil, "ip", "link", "del", "ens5") })
	return lan
}

func ipLines(t *testing.T, ns *netns.NS, lines ...string) {
	t.Helper()
	for _, line := range lines {
		nettest.IP(t, ns, line)
	}
}

// wired is an ipam section of both families with a route that has all attributes.
const wired = `,"ipam":{"type":"static","addresses":[{"address":"10.7.0.5/24","gateway":"10.7.0.1"},{"address":"fd00:7::5/64","gateway":"fd00:7::1"}],
	"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0","priority":77},{"dst":"172.16.0.0/16","gw":"10.7.0.1","mtu":1300,"advmss":1200,"priority":9,"table":50,"scope":0}]}`

// routesHonored checks wired's routes.
func routesHonored(t *testing.T, ns *netns.NS) {
	t.Helper()
	for argv, want := range map[string]string{
		"ip route show table 50": "172.16.0.0/16 via 10.7.0.1 dev eth0 proto 119 metric 9 mtu 1300 advmss 1200",
		"ip route":               "default via 10.7.0.1 dev eth0",
		"ip -6 route":            "default via fd00:7::1 dev eth0 proto 119 metric 77",
	} {
		out := strings.ReplaceAll(nettest.Run(t, ns, strings.Fields(argv)...), " linkdown", "") // a tap without a reader
		if !strings.Contains(out, want) {
			t.Errorf("%s: %q is missing: %s", argv, want, out)
		}
	}
}

// calm returns a namespace's state as printed by ip, without what a bridge learns from its ports.
func calm(t *testing.T, ns *netns.NS) string {
	t.Helper()
	return regexp.MustCompile(`tso_max_size \d+`).ReplaceAllString(steady(stateOf(t, ns)), "")
}

// life adds an attachment, calls inspect, and executes all other verbs.
func (h *host) life(typ, options string, ns *netns.NS, inspect func(result string)) {
	h.t.Helper()
	t := h.t
	c := conf("1.1.0", typ, options)
	h.must(typ, "STATUS", c, nil)
	before := calm(t, ns)
	result := h.must(typ, "ADD", c, ns).stdout
	if a := h.call(typ, "ADD", c, ns); a.code() != 100 {
		t.Errorf("a second ADD: %s", a.stdout)
	}
	inspect(result)
	checked := withPrev(c, result)
	h.must(typ, "CHECK", checked, ns)
	h.must(typ, "GC", strings.Replace(c, "{", `{"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}],`, 1),
		nil)
	h.must(typ, "CHECK", checked, ns)
	nettest.Run(t, ns, "ip", "link", "set", "eth0", "down")
	if a := h.call(typ, "CHECK", checked, ns); a.code() != 102 || !strings.Contains(a.stdout, "eth0") {
		t.Errorf("CHECK of a link that is down: %s", a.stdout)
	}
	for range 2 {
		h.must(typ, "DEL", checked, ns)
		if got := calm(t, ns); got != before {
			t.Errorf("DEL left\n%s\nof\n%s", got, before)
		}
	}
	h.must(typ, "ADD", c, ns)
	h.must(typ, "DEL", c, nil) // without the namespace, and without prevResult
	h.must(typ, "ADD", c, ns)
	h.must(typ, "GC", strings.Replace(c, "{", `{"cni.dev/valid-attachments":[],`, 1), nil)
	if out, err := nettest.Try(ns, "ip", "link", "show", "eth0"); err == nil {
		t.Errorf("GC left it: %s", out)
	}
	if left, _ := filepath.Glob(h.journal + "/*/*/*.json"); len(left) > 0 {
		t.Errorf("records: %v", left)
	}
}

func wantLink(t *testing.T, ns *netns.NS, words ...string) {
	t.Helper()
	out := nettest.Run(t, ns, "ip", "-d", "addr", "show", "eth0")
	for _, word := range words {
		if !strings.Contains(out, word) {
			t.Errorf("%q is missing: %s", word, out)
		}
	}
}

func TestMacvlan(t *testing.T) {
	nettest.Need(t, "macvlan")
	for name, tc := range map[string]struct {
		options string
		words   []string
	}{
		"default":    {"", []string{"macvlan mode bridge", "mtu 1450"}},
		"named":      {`,"master":"ens5","mtu":1400,"bcqueuelen":2000`, []string{"mode bridge bcqueuelen 2000", "mtu 1400"}},
		"other name": {`,"master":"the-uplink-of-the-node"`, []string{"eth0@"}},
		"private":    {`,"mode":"private"`, []string{"mode private"}}, "vepa": {`,"mode":"vepa"`, []string{"mode vepa"}},
		"passthru": {`,"mode":"passthru"`, []string{"mode passthru", "02:00:00:00:00:05"}},
		"mac":      {`,"mac":"02:00:00:00:00:77"`, []string{"02:00:00:00:00:77"}},
		"runtime":  {`,"mac":"02:00:00:00:00:77","runtimeConfig":{"mac":"02:00:00:00:00:78"}`, []string{"02:00:00:00:00:78"}},
		"both":     {`,"mode":"passthru","mac":"02:00:00:00:00:77"`, []string{"mode passthru", "02:00:00:00:00:77"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.uplink()
			ns := quickNS(t)
			h.life("macvlan", tc.options+wired, ns, func(result string) {
				wantLink(t, ns, append(tc.words, "inet 10.7.0.5/24", "inet6 fd00:7::5/64", "UP")...)
				routesHonored(t, ns)
				nettest.Run(t, ns, "ping", "-c1", "-W20", "10.7.0.1")
				nettest.Run(t, ns, "ping", "-c1", "-W20", "fd00:7::1")
				if out := nettest.Run(t, ns, "cat", "/proc/sys/net/ipv4/conf/eth0/arp_notify",
					"/proc/sys/net/ipv6/conf/eth0/ndisc_notify"); out != "1\n1\n" {
					t.Errorf("notifies: %q", out)
				}
				var r struct {
					Interfaces []struct{ Name, MAC, Sandbox string }
				}
				if err := json.Unmarshal([]byte(result), &r); err != nil || len(r.Interfaces) != 1 ||
					r.Interfaces[0].Sandbox != ns.Path() {
					t.Fatalf("result: %v %s", err, result)
				}
				wantLink(t, ns, "link/ether "+r.Interfaces[0].MAC)
			})
			if out := nettest.Run(t, nil, "ip", "link", "show", "ens5"); !strings.Contains(out, "02:00:00:00:00:05") {
				t.Errorf("the master is not as it was: %s", out)
			}
		})
	}
}

// Without ipam the container gets layer 2 only; the parent may also be another interface of the container.
func TestMacvlanL2(t *testing.T) {
	nettest.Need(t, "macvlan")
	h := newHost(t)
	h.uplink()
	ns := quickNS(t)
	h.life("macvlan", `,"master":"ens5"`, ns, func(result string) {
		wantLink(t, ns, "UP")
		if strings.Contains(result, "ips") || strings.Contains(nettest.Run(t, ns, "ip", "addr"), "inet ") {
			t.Errorf("result: %s", result)
		}
	})
	ipLines(t, ns, "link add net1 type veth peer name net2", "link set net1 up", "link set net2 up",
		"addr add 10.8.0.1/24 dev net1", "route add default via 10.8.0.2")
	for _, options := range []string{`,"master":"net1","linkInContainer":true`, `,"linkInContainer":true`} {
		h.life("macvlan", options, ns, func(string) { wantLink(t, ns, "eth0@net1") })
	}
}

// A bridge port cannot be the parent of a macvlan.
func TestMacvlanOnPort(t *testing.T) {
	nettest.Need(t, "macvlan")
	h := newHost(t)
	h.uplink()
	ns := quickNS(t)
	_, _ = nettest.Try(nil, "ip", "link", "del", "sbr0")
	ipLines(t, nil, "link add sbr0 type bridge", "link set ens5 master sbr0")
	if a := h.call("macvlan", "ADD", conf("1.1.0", "macvlan", `,"master":"ens5"`+wired), ns); a.code() != 7 ||
		!strings.Contains(a.stdout, "parent ens5 cannot have this link") {
		t.Errorf("ADD: %s", a.stdout)
	}
	if left := nettest.Run(t, ns, "ip", "-o", "link"); strings.Count(left, "\n") != 1 {
		t.Errorf("left: %s", left)
	}
	ipLines(t, nil, "link del sbr0")
}

func TestMacvlanArgs(t *testing.T) {
	nettest.Need(t, "macvlan")
	h := newHost(t)
	h.uplink()
	ns := quickNS(t)
	h.must("macvlan", "ADD", conf("1.1.0", "macvlan", `,"mac":"02:00:00:00:00:01"`), ns,
		"CNI_ARGS=IgnoreUnknown=1;MAC=02:00:00:00:00:02")
	wantLink(t, ns, "02:00:00:00:00:02")
	h.must("macvlan", "DEL", conf("1.1.0", "macvlan", ``), ns)
}

// Errors are reported by STATUS and by ADD.
func TestMastersThatDoNotGo(t *testing.T) {
	h := newHost(t)
	h.uplink()
	ns := quickNS(t)
	for _, typ := range []string{"macvlan", "ipvlan", "vlan"} {
		more := wired
		if typ == "vlan" {
			more = `,"vlanId":7` + wired
		}
		for options, want := range map[string]string{
			`,"master":"ens9"`:             `master \"ens9\" does not exist on the node`,
			`,"master":"lo"`:               `master \"lo\" cannot be used`,
			`,"master":"ens5","mtu":"all"`: `mtu is string, want int`,
		} {
			c := conf("1.1.0", typ, options+more)
			if a := h.call(typ, "STATUS", c, nil); a.code() != 50 || !strings.Contains(a.stdout, want) {
				t.Errorf("%s STATUS %s: %s", typ, options, a.stdout)
			}
			if a := h.call(typ, "ADD", c, ns); a.code() != 7 && a.code() != 6 || !strings.Contains(a.stdout, want) {
				t.Errorf("%s ADD %s: %s", typ, options, a.stdout)
			}
			h.must(typ, "DEL", conf("1.1.0", typ, `,"master":"ens9"`+more), ns)
		}
		if typ != "ipvlan" { // whose kernel module takes any MTU
			c := conf("1.1.0", typ, `,"master":"ens5","mtu":1451`+more)
			want := `mtu 1451 is above the 1450 of master \"ens5\"`
			if a := h.call(typ, "ADD", c, ns); a.code() != 7 || !strings.Contains(a.stdout, want) {
				t.Errorf("%s ADD above the master's MTU: %s", typ, a.stdout)
			}
		}
		c := conf("1.1.0", typ, `,"master":"ens9","linkInContainer":true`+more)
		h.must(typ, "STATUS", c, nil)
		if a := h.call(typ, "ADD", c, ns); a.code() != 7 ||
			!strings.Contains(a.stdout, `master \"ens9\" does not exist in the container`) {
			t.Errorf("%s: %s", typ, a.stdout)
		}
	}
	ipLines(t, nil, "route del default")
	if a := h.call("macvlan", "STATUS", conf("1.1.0", "macvlan", ""), nil); a.code() != 50 ||
		!strings.Contains(a.stdout, "no default route on the node") {
		t.Errorf("STATUS without a default route: %s", a.stdout)
	}
	ipLines(t, nil, "link set ens5 down")
	if a := h.call("vlan", "STATUS", conf("1.1.0", "vlan", `,"master":"ens5","vlanId":0`+wired), nil); a.code() != 50 ||
		!strings.Contains(a.stdout, `master \"ens5\" is down`) {
		t.Errorf("STATUS over a link that is down: %s", a.stdout)
	}
}

// A duplicate IPv6 address is rejected.
func TestMacvlanDuplicate(t *testing.T) {
	nettest.Need(t, "macvlan")
	h := newHost(t)
	lan := h.uplink()
	ns := nettest.NS(t, "c1")
	ipLines(t, lan, "addr add fd00:7::5/64 dev wire nodad")
	if a := h.call("macvlan", "ADD", conf("1.1.0", "macvlan", wired), ns); a.exit == 0 ||
		!strings.Contains(a.stdout, "fd00:7::5") {
		t.Errorf("ADD: %s", a.stdout)
	}
	if out, err := nettest.Try(ns, "ip", "link", "show", "eth0"); err == nil {
		t.Errorf("it is left: %s", out)
	}
}

func TestIpvlan(t *testing.T) {
	nettest.Need(t, "ipvlan")
	for _, mode := range []string{"", "l2", "l3", "l3s"} {
		t.Run(mode, func(t *testing.T) {
			h := newHost(t)
			lan := h.uplink()
			ns := quickNS(t)
			options, mode := `,"mtu":1400,"mode":"`+mode+`"`, mode
			if mode == "" {
				options, mode = `,"master":"ens5","mtu":1400`, "l2"
			}
			if mode != "l2" {
				ipLines(t, lan, "neigh add 10.7.0.5 lladdr 02:00:00:00:00:05 dev wire",
					"neigh add fd00:7::5 lladdr 02:00:00:00:00:05 dev wire")
				ipLines(t, nil, "addr add fd00:7::254/64 dev ens5 nodad")
			}
			h.life("ipvlan", options+wired, ns, func(string) {
				wantLink(t, ns, "ipvlan  mode "+mode, "mtu 1400", "02:00:00:00:00:05", "inet 10.7.0.5/24", "inet6 fd00:7::5/64")
				routesHonored(t, ns)
				nettest.Run(t, ns, "ping", "-c1", "-W20", "10.7.0.1")
				nettest.Run(t, ns, "ping", "-c1", "-W20", "fd00:7::1")
			})
		})
	}
}

// TestIpvlanMTU: an ipvlan link may have a larger MTU than its master, as with the reference plugin.
func TestIpvlanMTU(t *testing.T) {
	nettest.Need(t, "ipvlan")
	h := newHost(t)
	h.uplink()
	ns := quickNS(t)
	c := conf("1.1.0", "ipvlan", `,"master":"ens5","mtu":1451`+wired)
	h.must("ipvlan", "STATUS", c, nil)
	h.must("ipvlan", "ADD", c, ns)
	wantLink(t, ns, "mtu 1451")
	h.must("ipvlan", "DEL", c, ns)
}

// After a plugin that returned addresses, ipvlan needs neither ipam nor master.
func TestIpvlanChained(t *testing.T) {
	nettest.Need(t, "ipvlan")
	h := newHost(t)
	h.uplink()
	ns := quickNS(t)
	prev := `{"cniVersion":"1.1.0","interfaces":[{"name":"ens5"}],"ips":[{"address":"10.7.0.9/24","gateway":"10.7.0.1","interface":0}],"routes":[{"dst":"0.0.0.0/0"}]}`
	c := withPrev(conf("1.1.0", "ipvlan", ""), prev)
	h.must("ipvlan", "STATUS", conf("1.1.0", "ipvlan", ""), nil)
	result := h.must("ipvlan", "ADD", c, ns).stdout
	wantLink(t, ns, "inet 10.7.0.9/24")
	nettest.Run(t, ns, "ping", "-c1", "-W20", "10.7.0.1")
	var r struct {
		Interfaces []struct{ Name string }
		IPs        []struct{ Interface int }
	}
	if err := json.Unmarshal([]byte(result), &r); err != nil || len(r.IPs) != 1 ||
		r.Interfaces[r.IPs[0].Interface].Name != "eth0" {
		t.Errorf("result: %v %s", err, result)
	}
	h.must("ipvlan", "CHECK", withPrev(conf("1.1.0", "ipvlan", ""), result), ns)
	h.must("ipvlan", "DEL", c, ns)
}

func TestVLAN(t *testing.T) {
	nettest.Need(t, "vlan")
	h := newHost(t)
	lan := h.uplink()
	ns := quickNS(t)
	ipLines(t, lan, "addr flush dev wire", "link add link wire name tagged type vlan id 7", "link set tagged up",
		"addr add 10.7.0.1/24 dev tagged", "addr add fd00:7::1/64 dev tagged nodad")
	h.life("vlan", `,"master":"ens5","vlanId":7,"mtu":1400`+wired, ns, func(string) {
		wantLink(t, ns, "vlan protocol 802.1Q id 7", "mtu 1400", "02:00:00:00:00:05", "inet 10.7.0.5/24",
			"inet6 fd00:7::5/64")
		routesHonored(t, ns)
		nettest.Run(t, ns, "ping", "-c1", "-W20", "10.7.0.1")
		nettest.Run(t, ns, "ping", "-c1", "-W20", "fd00:7::1")
	})
	h.life("vlan", `,"master":"ens5","vlanId":0`+wired, ns, func(string) { wantLink(t, ns, "vlan protocol 802.1Q id 0") })
	h.must("vlan", "ADD", conf("1.1.0", "vlan", `,"master":"ens5","vlanId":7`+wired), ns)
	other := nettest.NS(t, "c2")
	if a := h.call("vlan", "ADD", conf("1.1.0", "vlan", `,"master":"ens5","vlanId":7`+wired), other,
		"CNI_CONTAINERID=c2"); a.code() != 7 || !strings.Contains(a.stdout, "VLAN 7 is in use") {
		t.Errorf("a second container in the VLAN: %s", a.stdout)
	}
	h.must("vlan", "DEL", conf("1.1.0", "vlan", `,"master":"ens5","vlanId":7`+wired), ns)
}

func TestDummy(t *testing.T) {
	nettest.Need(t, "dummy")
	h := newHost(t)
	ns := quickNS(t)
	h.life("dummy", wired, ns, func(string) {
		wantLink(t, ns, "dummy", "inet 10.7.0.5/24", "inet6 fd00:7::5/64", "UP")
		routesHonored(t, ns)
	})
}

func TestTap(t *testing.T) {
	nettest.Need(t, "tap")
	for name, tc := range map[string]struct {
		options string
		words   []string
	}{
		"plain":  {wired, []string{"tun type tap", "persist on", "inet 10.7.0.5/24", "inet6 fd00:7::5/64"}},
		"l2":     {"", []string{"tun type tap"}},
		"queues": {`,"multiQueue":true,"mtu":1400` + wired, []string{"multi_queue", "mtu 1400"}},
		"owner":  {`,"owner":0,"group":0,"mac":"02:00:00:00:00:77"`, []string{"user root group root", "02:00:00:00:00:77"}},
		"bridge": {
			`,"bridge":"br0","selinuxContext":"system_u:system_r:container_t:s0","runtimeConfig":{"mac":"02:00:00:00:00:78"}`,
			[]string{"master br0", "02:00:00:00:00:78"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			ns := quickNS(t)
			ipLines(t, ns, "link add br0 address 02:00:00:00:00:01 type bridge")
			h.life("tap", tc.options, ns, func(string) {
				wantLink(t, ns, append(tc.words, "UP")...)
				if strings.Contains(tc.options, "ipam") {
					routesHonored(t, ns)
				}
			})
		})
	}
	h := newHost(t)
	ns := quickNS(t)
	if a := h.call("tap", "ADD", conf("1.1.0", "tap", `,"bridge":"br0"`), ns); a.code() != 7 ||
		!strings.Contains(a.stdout, `bridge \"br0\" does not exist in the container`) {
		t.Errorf("no bridge: %s", a.stdout)
	}
}

// An attachment of one program can be checked and deleted by the other.
func TestKindsExchanged(t *testing.T) {
	bin := os.Getenv("WEFT_PEER_BIN_DIR")
	if bin == "" {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR is not set: not exchanged with the reference plugins")
	}
	for typ, options := range map[string]string{
		"macvlan": `,"master":"ens5","mode":"private"`, "tap": "", "ipvlan": `,"master":"ens5"`,
		"vlan": `,"master":"ens5","vlanId":7`, "dummy": "",
	} {
		t.Run(typ, func(t *testing.T) {
			nettest.Need(t, typ)
			h := newHost(t)
			h.uplink()
			ns := quickNS(t)
			c := conf("1.0.0", typ, options+hostLocal)
			gone := func(who string) {
				t.Helper()
				if out, err := nettest.Try(ns, "ip", "link", "show", "eth0"); err == nil {
					t.Errorf("%s: eth0 is left: %s", who, out)
				}
				if left, _ := filepath.Glob(h.data + "/n/1*"); len(left) > 0 {
					t.Errorf("%s: addresses left: %v", who, left)
				}
			}
			result := h.peer(bin, typ, "ADD", c, ns, "PATH="+os.Getenv("PATH"))
			h.must(typ, "CHECK", withPrev(c, result), ns)
			h.must(typ, "DEL", withPrev(c, result), ns)
			gone("weft's DEL of the peer's ADD")
			result = h.must(typ, "ADD", c, ns).stdout
			h.peer(bin, typ, "CHECK", withPrev(c, result), ns)
			h.peer(bin, typ, "DEL", withPrev(c, result), ns)
			gone("the peer's DEL of weft's ADD")
			h.must(typ, "ADD", c, ns)
			h.must(typ, "DEL", c, ns)
			gone("weft after both")
		})
	}
}
