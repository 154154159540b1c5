// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

const lentIPAM = `,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.6.0.0/24"}],[{"subnet":"fd00:6::/64"}]],"routes":[{"dst":"0.0.0.0/0"}],"dataDir":"DATA"}`

// card creates a link that acts as a network card, with all possible settings.
func (h *host) card() {
	h.t.Helper()
	_, _ = nettest.Try(nil, "ip", "link", "del", "wire")
	_, _ = nettest.Try(nil, "ip", "link", "del", "team")
	nettest.Run(h.t, nil, "sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0")
	h.t.Cleanup(func() { nettest.Run(h.t, nil, "sysctl", "-qw", "net.ipv6.conf.default.accept_dad=1") })
	for _, argv := range []string{
		"ip link add team type bridge",
		"ip link add ens5 address 02:00:00:00:00:05 mtu 1450 txqueuelen 77 type veth peer name wire", "ip link set wire up",
		"ip link property add dev ens5 altname network-card-in-the-fifth-slot",
		"ip link set ens5 up alias uplink", "ip addr add 192.0.2.5/24 brd + dev ens5",
		"ip addr add 2001:db8::5/64 dev ens5 nodad", "ip addr add 198.18.0.5/24 dev ens5",
		"ip route add 198.51.100.0/24 via 192.0.2.1 dev ens5 proto static",
		"ip -6 route add 2001:db8:1::/48 via 2001:db8::1 dev ens5",
		"sysctl -qw net.ipv4.conf.ens5.rp_filter=2 net.ipv6.conf.ens5.accept_ra=0",
	} {
		nettest.Run(h.t, nil, strings.Fields(argv)...)
	}
	h.t.Cleanup(func() {
		_, _ = nettest.Try(nil, "ip", "link", "del", "wire")
		_, _ = nettest.Try(nil, "ip", "link", "del", "team")
	})
	h.root = h.t.TempDir()
	for dir, driver := range map[string]string{
		"/sys/bus/pci/devices/0000:00:05.0/virtio3/net/ens5": "virtio-pci", "/sys/bus/pci/devices/0000:00:06.0": "vfio-pci",
		"/sys/bus/pci/devices/0000:00:07.0": "e1000e", "/sys/bus/auxiliary/devices/mlx5_core.sf.2/net/ens5": "mlx5_core.sf",
		"/sys/devices/pci0000:00/0000:00:05.0/net/ens5": "",
	} {
		if err := os.MkdirAll(h.root+dir, 0o755); err != nil {
			h.t.Fatal(err)
		}
		bus, rest, found := strings.Cut(strings.TrimPrefix(dir, "/sys/bus/"), "/devices/")
		if id, _, _ := strings.Cut(rest, "/"); found && driver != "" {
			if err := os.Symlink("../../drivers/"+driver, h.root+"/sys/bus/"+bus+"/devices/"+id+"/driver"); err != nil {
				h.t.Fatal(err)
			}
		}
	}
}

// quickNS is a container's namespace without duplicate address detection.
func quickNS(t *testing.T) *netns.NS {
	t.Helper()
	ns := nettest.NS(t, "c1")
	nettest.Run(t, ns, "sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0")
	return ns
}

// cardState returns the node's state as printed by ip.
func cardState(t *testing.T) string {
	t.Helper()
	rp := nettest.Run(t, nil, "sysctl", "net.ipv4.conf.ens5.rp_filter", "net.ipv6.conf.ens5.accept_ra",
		"net.ipv4.conf.ens5.arp_notify")
	return steady(stateOf(t, nil) + rp)
}

// steady omits what the kernel changes asynchronously, and the order in which links came up.
func steady(out string) string {
	var lines []string
	for line := range strings.Lines(out) {
		if strings.Contains(line, "fe80::") || strings.Contains(line, "table local") {
			continue
		}
		lines = append(lines, regexp.MustCompile(`NO-CARRIER,|,LOWER_UP| state [A-Z]+| tentative`).ReplaceAllString(line, ""))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func TestHostDevice(t *testing.T) {
	for name, options := range map[string]string{
		"device": `,"device":"ens5"`, "other name": `,"device":"network-card-in-the-fifth-slot"`,
		"address": `,"hwaddr":"02-00-00-00-00-05"`,
		"path":    `,"kernelpath":"/sys/devices/pci0000:00/0000:00:05.0"`, "bus": `,"pciBusID":"0000:00:05.0"`,
		"runtime":   `,"pciBusID":"0000:00:06.0","runtimeConfig":{"deviceID":"0000:00:05.0"}`,
		"auxiliary": `,"runtimeConfig":{"deviceID":"mlx5_core.sf.2"}`,
		"first":     `,"device":"ens5","hwaddr":"02:00:00:00:00:99","kernelpath":"/nowhere","pciBusID":"0000:00:06.0"`,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.card()
			ns := quickNS(t)
			before, empty := cardState(t), steady(stateOf(t, ns))
			c := conf("1.1.0", "host-device", options+lentIPAM)
			h.must("host-device", "STATUS", c, nil)
			result := h.must("host-device", "ADD", c, ns).stdout
			if !strings.Contains(result, `"mac": "02:00:00:00:00:05"`) ||
				strings.Contains(result, `"pciID": "0000:00:05.0"`) != strings.Contains(options, "00:05.0\"") || name == "path" {
				if name != "path" || strings.Contains(result, "pciID") {
					t.Errorf("result: %s", result)
				}
			}
			out := nettest.Run(t, ns, "ip", "-d", "addr", "show", "eth0")
			for _, word := range []string{"UP", "alias ens5", "inet 10.6.0.2/24", "inet6 fd00:6::2/64", "mtu 1450"} {
				if !strings.Contains(out, word) {
					t.Errorf("%s is missing: %s", word, out)
				}
			}
			if out := nettest.Run(t, ns, "ip", "route"); !strings.Contains(out, "default via 10.6.0.1 dev eth0") {
				t.Errorf("routes: %s", out)
			}
			if a := h.call("host-device", "STATUS", c, nil); a.code() != 50 && name != "runtime" && name != "bus" &&
				name != "auxiliary" && name != "path" {
				t.Errorf("STATUS while it is away: %s", a.stdout)
			}
			prev := withPrev(c, result)
			h.must("host-device", "CHECK", prev, ns)
			nettest.Run(t, ns, "ip", "addr", "del", "10.6.0.2/24", "dev", "eth0")
			if a := h.call("host-device", "CHECK", prev, ns); a.code() != 102 || !strings.Contains(a.stdout, "10.6.0.2/24") {
				t.Errorf("CHECK: %s", a.stdout)
			}
			nettest.Run(t, ns, "ip", "link", "set", "eth0", "down")
			nettest.Run(t, ns, "ip", "link", "set", "eth0", "mtu", "1300", "address", "02:00:00:00:00:99", "promisc", "on",
				"txqueuelen", "5")
			h.must("host-device", "DEL", prev, ns)
			h.must("host-device", "DEL", prev, ns)
			if got := cardState(t); got != before {
				t.Errorf("after DEL\n%s\nbefore ADD\n%s", got, before)
			}
			if got := steady(stateOf(t, ns)); got != empty {
				t.Errorf("container after DEL\n%s\nbefore ADD\n%s", got, empty)
			}
			h.nothingOf("host-device")
		})
	}
}

func (h *host) nothingOf(typ string) {
	h.t.Helper()
	for _, pattern := range []string{h.data + "/n/1*", h.data + "/n/f*", h.journal + "/*/" + typ + "/*.json"} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			h.t.Errorf("left: %v", left)
		}
	}
}

// A bridge port is a port again after DEL.
func TestHostDeviceOfBridge(t *testing.T) {
	h := newHost(t)
	h.card()
	nettest.Run(t, nil, "ip", "link", "set", "ens5", "master", "team")
	nettest.Run(t, nil, "bridge", "link", "set", "dev", "ens5", "hairpin", "on", "learning", "off")
	before := nettest.Run(t, nil, "bridge", "-d", "link", "show", "dev", "ens5")
	ns := quickNS(t)
	c := conf("1.0.0", "host-device", `,"device":"ens5"`)
	h.must("host-device", "ADD", c, ns)
	h.must("host-device", "DEL", c, ns)
	if got := nettest.Run(t, nil, "bridge", "-d", "link", "show", "dev", "ens5"); got != before {
		t.Errorf("after DEL\n%s\nbefore ADD\n%s", got, before)
	}
}

// A device with a userspace driver has no link: only its address is allocated.
func TestHostDeviceDPDK(t *testing.T) {
	h := newHost(t)
	h.card()
	ns := quickNS(t)
	before, empty := cardState(t), steady(stateOf(t, ns))
	c := conf("1.1.0", "host-device", `,"pciBusID":"0000:00:06.0"`+lentIPAM)
	a := h.must("host-device", "ADD", c, ns)
	if !strings.Contains(a.stdout, `"address": "10.6.0.2/24"`) || !strings.Contains(a.stdout, `"pciID": "0000:00:06.0"`) {
		t.Errorf("ADD: %s", a.stdout)
	}
	if cardState(t) != before || steady(stateOf(t, ns)) != empty {
		t.Error("something moved")
	}
	h.must("host-device", "CHECK", withPrev(c, a.stdout), ns)
	h.must("host-device", "DEL", c, ns)
	h.nothingOf("host-device")
}

func TestHostDeviceWithoutNamespace(t *testing.T) {
	h := newHost(t)
	h.card()
	ns, err := netns.New(filepath.Join(t.TempDir(), "c1"))
	if err != nil {
		t.Fatal(err)
	}
	nettest.Run(t, ns, "sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0")
	c := conf("1.0.0", "host-device", `,"device":"ens5"`+lentIPAM)
	h.must("host-device", "ADD", c, ns)
	_ = ns.Close()
	if err := netns.Remove(ns.Path()); err != nil {
		t.Fatal(err)
	}
	h.must("host-device", "DEL", c, ns)
	h.nothingOf("host-device")

	// As the kernel does with hardware, and without a record: the reference plugin's.
	h.card()
	nettest.Run(t, nil, "ip", "link", "set", "ens5", "down")
	nettest.Run(t, nil, "ip", "link", "set", "ens5", "alias", "ens5", "name", "dev9")
	h.must("host-device", "DEL", c, nil)
	if out := nettest.Run(t, nil, "ip", "link", "show", "ens5"); strings.Contains(out, "alias") {
		t.Errorf("it has its name, and the mark still: %s", out)
	}
}

func TestHostDeviceCut(t *testing.T) {
	h := newHost(t)
	h.card()
	ns := quickNS(t)
	before, empty := cardState(t), steady(stateOf(t, ns))
	c := conf("1.1.0", "host-device", `,"device":"ens5"`+lentIPAM)
	same := func(what string) {
		t.Helper()
		if got := cardState(t); got != before {
			t.Errorf("%s:\n%s\nbefore:\n%s", what, got, before)
		}
		if got := steady(stateOf(t, ns)); got != empty {
			t.Errorf("%s: container\n%s\nbefore:\n%s", what, got, empty)
		}
		h.nothingOf("host-device")
	}
	n := h.eachCut("host-device", "ADD", c, ns, func(step string) {
		h.must("host-device", "DEL", c, ns)
		same("ADD cut at " + step + ", DEL")
	})
	h.eachCut("host-device", "ADD", c, ns, func(step string) {
		if !strings.Contains(step, "end") && !strings.Contains(step, "after done") {
			h.must("host-device", "ADD", c, ns)
		}
		h.must("host-device", "DEL", c, ns)
		same("ADD cut at " + step + ", ADD, DEL")
	})
	h.must("host-device", "ADD", c, ns)
	m := h.eachCut("host-device", "DEL", c, ns, func(step string) {
		h.must("host-device", "DEL", c, ns)
		same("DEL cut at " + step + ", DEL")
		h.must("host-device", "ADD", c, ns)
	})
	if n < 5 || m < 7 {
		t.Errorf("only %d and %d steps were cut", n, m)
	}
	h.must("host-device", "DEL", c, ns)
}

// A device that one program moved is moved back by the other.
func TestHostDeviceExchanged(t *testing.T) {
	bin := os.Getenv("WEFT_PEER_BIN_DIR")
	if bin == "" {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR is not set: not exchanged with the reference plugins")
	}
	h := newHost(t)
	h.card()
	ns := quickNS(t)
	c := conf("1.0.0", "host-device", `,"device":"ens5"`+hostLocal)
	back := func(who string) {
		t.Helper()
		if out := nettest.Run(t, nil, "ip", "link", "show", "ens5"); strings.Contains(out, "alias ens5") {
			t.Errorf("%s: the mark is left: %s", who, out)
		}
		if left, _ := filepath.Glob(h.data + "/n/1*"); len(left) > 0 {
			t.Errorf("%s: addresses left: %v", who, left)
		}
	}
	result := h.peer(bin, "host-device", "ADD", c, ns)
	h.must("host-device", "CHECK", withPrev(c, result), ns)
	h.must("host-device", "DEL", withPrev(c, result), ns)
	back("weft's DEL of the peer's ADD")
	result = h.must("host-device", "ADD", c, ns).stdout
	h.peer(bin, "host-device", "CHECK", withPrev(c, result), ns)
	h.peer(bin, "host-device", "DEL", withPrev(c, result), ns)
	back("the peer's DEL of weft's ADD")
	h.must("host-device", "ADD", c, ns)
	h.must("host-device", "DEL", c, ns)
	back("weft after both")
	h.nothingOf("host-device")
}

func TestHostDeviceRefused(t *testing.T) {
	h := newHost(t)
	h.card()
	ns := quickNS(t)
	for options, want := range map[string]string{
		`,"device":"ens9"`:                               `plugin host-device: device \"ens9\" is not on this node`,
		`,"hwaddr":"02:00:00:00:00:06"`:                  `plugin host-device: device with hwaddr 02:00:00:00:00:06 is not on this node`,
		`,"pciBusID":"0000:00:09.0"`:                     `plugin host-device: device with pciBusID \"0000:00:09.0\" is not on this node`,
		`,"pciBusID":"0000:00:07.0"`:                     `plugin host-device: device with pciBusID \"0000:00:07.0\" has no network device on this node`,
		`,"kernelpath":"/sys/devices/none"`:              `plugin host-device: device with kernelpath \"/sys/devices/none\" is not on this node`,
		`,"runtimeConfig":{"deviceID":"mlx5_core.sf.3"}`: `plugin host-device: device with runtimeConfig.deviceID \"mlx5_core.sf.3\" is not on this node`,
	} {
		c := conf("1.1.0", "host-device", options+lentIPAM)
		if a := h.call("host-device", "ADD", c, ns); a.code() != 7 || !strings.Contains(a.stdout, want) {
			t.Errorf("ADD %s: %s", options, a.stdout)
		}
		if a := h.call("host-device", "STATUS", c, ns); a.code() != 50 || !strings.Contains(a.stdout, want) {
			t.Errorf("STATUS %s: %s", options, a.stdout)
		}
		h.nothingOf("host-device")
	}
	nettest.Run(t, ns, "ip", "link", "add", "eth0", "type", "bridge")
	if a := h.call("host-device", "ADD", conf("1.1.0", "host-device", `,"device":"ens5"`), ns); a.code() != 100 {
		t.Errorf("over another interface: %s", a.stdout)
	}
	nettest.Run(t, nil, "ip", "link", "show", "ens5")
}
