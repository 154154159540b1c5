// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

const subnetEnv = "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"

const dualEnv = "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.3.1/24\nFLANNEL_IPV6_NETWORK=fd00:42::/56\nFLANNEL_IPV6_SUBNET=fd00:42:0:3::1/64\n" +
	"FLANNEL_MTU=1430\nFLANNEL_IPMASQ=false\n"

// cbr0 is kube-flannel's configuration, with the test's files.
const cbr0 = `{"cniVersion":"VERSION","name":"cbr0","type":"flannel","subnetFile":"DATA/subnet.env","dataDir":"DATA/flannel",
"delegate":{"bridge":"sbr0","hairpinMode":true,"isDefaultGateway":true},"ipam":{"dataDir":"DATA"}}`

func flannelConf(version string) string { return strings.Replace(cbr0, "VERSION", version, 1) }

// lease writes flanneld's subnet file.
func (h *host) lease(text string) {
	h.t.Helper()
	if err := os.WriteFile(h.data+"/subnet.env", []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// saved returns the saved delegates.
func (h *host) saved() string {
	var names []string
	entries, _ := os.ReadDir(h.data + "/flannel")
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// flannelPeers returns a directory with the real plugin and those that it delegates to.
func flannelPeers(t *testing.T) string {
	t.Helper()
	peers, dir := os.Getenv("WEFT_PEER_BIN_DIR"), os.Getenv("WEFT_FLANNEL_DIR")
	if home, err := os.UserHomeDir(); dir == "" && err == nil {
		dir = filepath.Join(home, ".cache/weft/flannel-v0.28.9")
	}
	program := filepath.Join(dir, "flannel")
	if _, err := os.Stat(program); err != nil || peers == "" {
		nettest.SkipMissing(t,
			"no "+program+" (test/flannel/build.sh) or WEFT_PEER_BIN_DIR is not set: not compared with the flannel plugin")
	}
	bin := t.TempDir()
	for _, from := range []string{program, peers + "/bridge", peers + "/ptp", peers + "/host-local"} {
		if err := os.Symlink(from, filepath.Join(bin, filepath.Base(from))); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}

func (h *host) nothingLeft(ns *netns.NS, what string) {
	h.t.Helper()
	if out, err := nettest.Try(ns, "ip", "link", "show", "eth0"); err == nil {
		h.t.Errorf("%s: eth0 is left: %s", what, out)
	}
	for _, pattern := range []string{h.data + "/*/10.*", h.data + "/*/fd*", h.data + "/flannel/*"} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			h.t.Errorf("%s: left: %v", what, left)
		}
	}
}

// All verbs: the delegate is a bridge with flanneld's subnet, it is saved where the reference plugin saves it, and
// deleted.
func TestFlannelVerbs(t *testing.T) {
	h := newHost(t)
	h.lease(subnetEnv)
	ns := nettest.NS(t, "c1")
	c := flannelConf("1.1.0")
	h.must("flannel", "STATUS", c, nil)
	result := h.must("flannel", "ADD", c, ns).stdout
	if !strings.Contains(result, `"address": "10.42.3.2/24"`) || !strings.Contains(result, `"dst": "10.42.0.0/16"`) {
		t.Errorf("ADD: %s", result)
	}
	nettest.Run(t, ns, "ping", "-c1", "-W20", "10.42.3.1")
	if out := nettest.Run(t, ns, "ip", "link", "show", "eth0"); !strings.Contains(out, "mtu 1450") {
		t.Errorf("the MTU is not flanneld's: %s", out)
	}
	if h.saved() != "c1" {
		t.Errorf("written down: %q", h.saved())
	}
	h.must("flannel", "CHECK", withPrev(c, result), ns)
	if err := os.Remove(h.data + "/subnet.env"); err != nil {
		t.Fatal(err)
	}
	h.must("flannel", "CHECK", withPrev(c, result), ns) // the pod has what it has
	nettest.Run(t, ns, "ip", "addr", "del", "10.42.3.2/24", "dev", "eth0")
	if a := h.call("flannel", "CHECK", withPrev(c, result), ns); a.code() != 102 ||
		!strings.Contains(a.stdout, "10.42.3.2/24") {
		t.Errorf("CHECK of a pod without its address: %s", a.stdout)
	}
	h.must("flannel", "DEL", c, ns)
	h.nothingLeft(ns, "DEL")
	h.must("flannel", "DEL", c, ns)

	h.lease(subnetEnv)
	h.must("flannel", "ADD", c, ns)
	h.must("flannel", "GC",
		strings.Replace(c, "{", `{"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}],`, 1), nil)
	if h.saved() != "c1" {
		t.Errorf("GC took what is valid")
	}
	h.must("flannel", "GC", strings.Replace(c, "{", `{"cni.dev/valid-attachments":[],`, 1), nil)
	h.nothingLeft(ns, "GC")
}

// Two such networks of one container have separate delegates.
func TestTwoFlannelNetworksOfOnePod(t *testing.T) {
	h := newHost(t)
	h.lease(subnetEnv)
	ns := nettest.NS(t, "c1")
	first := flannelConf("1.0.0")
	second := strings.NewReplacer("cbr0", "other", "sbr0", "sbr1", `"isDefaultGateway":true`,
		`"isGateway":true`).Replace(first)
	t.Cleanup(func() { _, _ = nettest.Try(nil, "ip", "link", "del", "sbr1") })
	h.must("flannel", "ADD", first, ns)
	h.must("flannel", "ADD", second, ns, "CNI_IFNAME=net1")
	if h.saved() != "c1 c1.net1" {
		t.Errorf("written down: %q", h.saved())
	}
	// Also when all is forgotten but what is written down.
	h.journal = t.TempDir()
	h.must("flannel", "DEL", first, ns)
	if h.saved() != "c1.net1" {
		t.Errorf("written down after the first DEL: %q", h.saved())
	}
	nettest.Run(t, ns, "ip", "link", "show", "net1")
	h.must("flannel", "DEL", second, ns, "CNI_IFNAME=net1")
	h.nothingLeft(ns, "both DELs")
	if out, err := nettest.Try(ns, "ip", "link", "show", "net1"); err == nil {
		t.Errorf("net1 is left: %s", out)
	}
}

// The reference plugin saves only the second of two networks of one container. Both are deleted nevertheless.
func TestTwoFlannelNetworksOfTheOriginal(t *testing.T) {
	h := newHost(t)
	h.lease(subnetEnv)
	first := flannelConf("1.0.0")
	second := strings.NewReplacer("cbr0", "other", "sbr0", "sbr1", `"isDefaultGateway":true`,
		`"isGateway":true`).Replace(first)
	t.Cleanup(func() { _, _ = nettest.Try(nil, "ip", "link", "del", "sbr1") })
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		ns := nettest.NS(t, "c1")
		h.must("flannel", "ADD", first, ns)
		h.must("flannel", "ADD", second, ns, "CNI_IFNAME=net1")
		h.journal = t.TempDir()
		if err := os.Rename(h.data+"/flannel/c1.net1", h.data+"/flannel/c1"); err != nil { // as it does
			t.Fatal(err)
		}
		for _, i := range order {
			h.must("flannel", "DEL", []string{first, second}[i], ns, []string{"CNI_IFNAME=eth0", "CNI_IFNAME=net1"}[i])
		}
		h.nothingLeft(ns, "both DELs")
		if out, err := nettest.Try(ns, "ip", "link", "show", "net1"); err == nil {
			t.Errorf("net1 is left: %s", out)
		}
	}
}

// A delegate need be neither a bridge nor built in.
func TestFlannelDelegates(t *testing.T) {
	h := newHost(t)
	h.lease(subnetEnv)
	ns := nettest.NS(t, "c1")
	c := strings.Replace(flannelConf("1.0.0"), `"bridge":"sbr0","hairpinMode":true,"isDefaultGateway":true`,
		`"type":"ptp"`, 1)
	if out := h.must("flannel", "ADD", c, ns).stdout; !strings.Contains(out, `"address": "10.42.3.2/24"`) {
		t.Errorf("ptp: %s", out)
	}
	h.must("flannel", "DEL", c, ns)
	h.nothingLeft(ns, "ptp")

	script := "#!/bin/sh\ncat > " + h.data +
		"/$CNI_COMMAND\n[ $CNI_COMMAND != ADD ] || echo '{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":\"10.42.3.9/24\"}]}'\n"
	if err := os.WriteFile(h.bin+"/other", []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	c = strings.Replace(c, `"type":"ptp"`, `"type":"other","mine":[1]`, 1)
	if out := h.must("flannel", "ADD", c, ns).stdout; !strings.Contains(out, "10.42.3.9/24") {
		t.Errorf("foreign: %s", out)
	}
	h.must("flannel", "DEL", c, ns)
	h.nothingLeft(ns, "foreign")
	for _, verb := range []string{"ADD", "DEL"} {
		b, _ := os.ReadFile(h.data + "/" + verb)
		for _, want := range []string{`"mine":[1]`, `"name":"cbr0"`, `"mtu":1450`, `"ipMasq":false`, `"dst":"10.42.0.0/16"`} {
			if !strings.Contains(string(b), want) {
				t.Errorf("%s lacks %s: %s", verb, want, b)
			}
		}
	}
}

func TestBadFlannel(t *testing.T) {
	h := newHost(t)
	ns := nettest.NS(t, "c1")
	c := flannelConf("1.1.0")
	bad := func(what, verb, conf string, code int, words string) {
		t.Helper()
		a := h.call("flannel", verb, conf, ns)
		if got := strings.ReplaceAll(a.stdout, h.data, "DATA"); a.code() != code || !strings.Contains(got, words) {
			t.Errorf("%s: want code %d and %q, got %s", what, code, words, got)
		}
	}
	h.must("flannel", "DEL", c, ns)
	bad("no lease", "ADD", c, 11, `plugin flannel: subnetFile DATA/subnet.env is not there yet`)
	bad("no lease", "STATUS", c, 50, `plugin flannel: subnetFile DATA/subnet.env is not there yet`)
	h.lease("")
	bad("empty lease", "ADD", c, 11, `FLANNEL_MTU, FLANNEL_IPMASQ is missing: it is incomplete`)
	h.lease(strings.Replace(subnetEnv, "10.42.3.1/24", "10.42.3.1", 1))
	bad("broken lease", "ADD", c, 7,
		`plugin flannel: subnetFile DATA/subnet.env: FLANNEL_SUBNET \"10.42.3.1\" is no prefix`)
	h.lease(subnetEnv)
	for was, tt := range map[string]struct {
		is    string
		code  int
		words string
	}{
		`"delegate":{`:       {`"delegate":{"name":"x",`, 7, `plugin flannel: delegate.name \"x\" must not be set`},
		`"hairpinMode"`:      {`"ipam":{},"hairpinMode"`, 7, `plugin flannel: delegate.ipam must not be set`},
		`"isDefaultGateway"`: {`"type":5,"isDefaultGateway"`, 6, `plugin flannel: delegate.type is number, want string`},
		`"bridge":"sbr0"`:    {`"type":"flannel"`, 7, `plugin flannel: delegate.type \"flannel\" is the plugin itself`},
		`"hairpinMode":true`: {`"hairpinMode":"yes"`, 6, `plugin bridge: hairpinMode is string, want bool`},
		`"dataDir":"DATA"`:   {`"type":""`, 7, `plugin flannel: ipam.type \"\" names no plugin`},
		`{"dataDir":"DATA"}`: {`"host-local"`, 6, `plugin flannel: ipam is string, want object`},
		`"ipam":`:            {`"subnetFile":["a"],"ipam":`, 6, `plugin flannel: subnetFile is array, want string`},
	} {
		bad(was, "ADD", strings.Replace(c, was, tt.is, 1), tt.code, tt.words)
	}
	h.nothingLeft(ns, "what was refused")
}

// Results and saved delegates equal the reference plugin's, and each deletes what the other created.
func TestFlannelAndItsOriginal(t *testing.T) {
	nettest.EndToEnd(t)
	bin := flannelPeers(t)
	for name, tt := range map[string]struct{ lease, conf string }{
		"kube-flannel": {subnetEnv, cbr0},
		"dual stack":   {dualEnv, cbr0},
		"routes": {
			subnetEnv,
			strings.Replace(cbr0, `"dataDir":"DATA"}`,
				`"dataDir":"DATA","routes":[{"dst":"10.9.0.0/16"},{"dst":"10.8.0.0/16","gw":"10.42.3.1"}]}`, 1),
		},
		"ptp": {dualEnv, strings.Replace(cbr0, `"bridge":"sbr0"`, `"type":"ptp"`, 1)},
		"own words": {
			dualEnv, strings.Replace(cbr0, `"hairpinMode"`, `"mtu":1300,"ipMasq":false,"isGateway":true,"hairpinMode"`, 1),
		},
		"runtime": {
			subnetEnv, strings.Replace(cbr0, `"delegate"`, `"runtimeConfig":{"mac":"02:00:00:00:00:07"},"delegate"`, 1),
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.lease(tt.lease)
			ns := nettest.NS(t, "c1")
			c := strings.Replace(tt.conf, "VERSION", "0.4.0", 1) // the newest that it knows
			theirs := h.peer(bin, "flannel", "ADD", c, ns)
			text, err := os.ReadFile(h.data + "/flannel/c1")
			if err != nil {
				t.Fatal(err)
			}
			h.must("flannel", "CHECK", withPrev(c, theirs), ns)
			h.must("flannel", "DEL", c, ns)
			h.nothingLeft(ns, "weft's DEL of the original's ADD")
			_, _ = nettest.Try(nil, "ip", "link", "del", "sbr0")
			for _, left := range []string{"/cbr0/last_reserved_ip.0", "/cbr0/last_reserved_ip.1"} {
				_ = os.Remove(h.data + left)
			}

			ours := h.must("flannel", "ADD", c, ns).stdout
			if diff := cmp.Diff(plain(t, theirs), plain(t, ours)); diff != "" {
				t.Errorf("the original's result, and weft's:\n%s", diff)
			}
			mine, _ := os.ReadFile(h.data + "/flannel/c1")
			if diff := cmp.Diff(string(text), string(mine)); diff != "" {
				t.Errorf("what the original writes down, and weft:\n%s", diff)
			}
			h.peer(bin, "flannel", "DEL", c, ns)
			h.nothingLeft(ns, "the original's DEL of weft's ADD")
			h.must("flannel", "ADD", c, ns)
			h.must("flannel", "DEL", c, ns)
			h.nothingLeft(ns, "both")
		})
	}
}

// plain returns a result without what differs between ADDs: names and MAC addresses of new links.
func plain(t *testing.T, result string) map[string]any {
	t.Helper()
	var r map[string]any
	if err := json.Unmarshal([]byte(result), &r); err != nil {
		t.Fatalf("%v: %s", err, result)
	}
	list, _ := r["interfaces"].([]any)
	for _, i := range list {
		one := i.(map[string]any)
		delete(one, "mac")
		if n, _ := one["name"].(string); strings.HasPrefix(n, "veth") {
			one["name"] = "veth"
		}
	}
	return r
}
