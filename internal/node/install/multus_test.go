// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cni/confdir"
)

// flannel is the configuration of flannel's own installation.
const flannel = `{
  "name": "cbr0",
  "cniVersion": "0.3.1",
  "plugins": [
    {"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}`

const wantMultus = `{
  "cniVersion": "1.0.0",
  "name": "cbr0",
  "type": "weft-cni",
  "weft": {
    "derivedFrom": "10-flannel.conflist"
  },
  "capabilities": {
    "io.kubernetes.cri.pod-annotations": true,
    "portMappings": true
  },
  "namespaceIsolation": true,
  "globalNamespaces": "default,nets",
  "delegates": [
    {
      "name": "cbr0",
      "cniVersion": "0.3.1",
      "plugins": [
        {
          "type": "flannel",
          "delegate": {
            "hairpinMode": true,
            "isDefaultGateway": true
          }
        },
        {
          "type": "portmap",
          "capabilities": {
            "portMappings": true
          }
        }
      ]
    }
  ]
}
`

func multusDirs(t *testing.T) Config {
	t.Helper()
	return Config{
		BinDir: "/none", ConfDir: t.TempDir(), Multus: &Multus{
			NamespaceIsolation: true, GlobalNamespaces: []string{"default", "nets"},
		},
	}
}

// TestMultusForm: the first other configuration is the delegate, and the union of the capabilities is declared.
func TestMultusForm(t *testing.T) {
	c := multusDirs(t)
	thick := `{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus-shim"}`
	files(t, c.ConfDir, map[string]string{
		"10-flannel.conflist": flannel, "20-b.conflist": list("b"), "05-multus.conf": thick,
	})
	changes, err := configureIn(t, c)
	if err != nil || says(c, changes) != "installed 00-multus.conf derived from 10-flannel.conflist\n" {
		t.Fatalf("%s, %v", says(c, changes), err)
	}
	b, err := os.ReadFile(filepath.Join(c.ConfDir, "00-multus.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantMultus, string(b)); diff != "" {
		t.Error(diff)
	}
	// A runtime reads it as a single plugin, and first.
	names, err := libcni.ConfFiles(c.ConfDir, []string{".conf", ".conflist", ".json"})
	if err != nil || filepath.Base(names[0]) != "00-multus.conf" {
		t.Errorf("%q, %v", names, err)
	}
	conf, err := libcni.NetworkPluginConfFromBytes(b)
	if err != nil || conf.Network.Type != "weft-cni" {
		t.Errorf("%+v, %v", conf, err)
	}
	if _, err := confdir.Parse(b, c.ConfDir); err != nil {
		t.Error(err)
	}
}

// TestMultusFollows: the form follows a change of its source soon, a reader never sees a part of it, and it is removed
// with its source.
func TestMultusFollows(t *testing.T) {
	c := multusDirs(t)
	source, form := filepath.Join(c.ConfDir, "10-flannel.conflist"), filepath.Join(c.ConfDir, "00-multus.conf")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Follow(ctx, c, func([]Change, error) {}) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(form); err == nil {
			t.Error("the form is still there")
		}
	}()
	for _, mtu := range []string{"1400", "1300", "1200"} {
		text := strings.Replace(flannel, `"hairpinMode": true`, `"mtu": `+mtu, 1)
		if err := os.WriteFile(source+".tmp", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(source+".tmp", source); err != nil {
			t.Fatal(err)
		}
		until(t, "mtu "+mtu, func() bool {
			b, err := os.ReadFile(form)
			if err == nil && !json.Valid(b) {
				t.Fatalf("a part of a file: %s", b)
			}
			return strings.Contains(string(b), `"mtu": `+mtu)
		})
	}
	if err := os.Remove(source); err != nil {
		t.Fatal(err)
	}
	until(t, "no form", func() bool { _, err := os.Stat(form); return os.IsNotExist(err) })
}

// TestMultusForeign: a foreign 00-multus.conf is not overwritten.
func TestMultusForeign(t *testing.T) {
	c := multusDirs(t)
	files(t, c.ConfDir, map[string]string{
		"10-a.conflist": list("a"), "00-multus.conf": `{"cniVersion":"0.3.1","name":"m","type":"multus"}`,
	})
	want := "configuration " + c.ConfDir + "/00-multus.conf: not weft's, and nothing was changed"
	if _, err := configureIn(t, c); err == nil || fault(t, err).Msg != want {
		t.Errorf("%v", err)
	}
}

// TestCluster: weft's own network is written once, follows its settings, and replaces only derived forms.
func TestCluster(t *testing.T) {
	c := Config{BinDir: "/none", ConfDir: t.TempDir()}
	files(t, c.ConfDir, map[string]string{"10-a.conflist": list("a")})
	if _, err := configureIn(t, Config{ConfDir: c.ConfDir, Multus: &Multus{}}); err != nil {
		t.Fatal(err)
	}
	own := Own{
		Name: "weft", Node: "n1", MTU: 1400, CIDRs: []netip.Prefix{
			netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:1::/64"),
		},
	}
	for _, want := range []string{
		"installed 00-weft.conflist\nremoved 00-multus.conf was derived from 10-a.conflist\n",
		"unchanged 00-weft.conflist\n",
	} {
		changes, err := Cluster(t.Context(), c, own)
		if err != nil || says(c, changes) != want {
			t.Errorf("%s, %v", says(c, changes), err)
		}
	}
	b, err := os.ReadFile(filepath.Join(c.ConfDir, clusterName))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := libcni.NetworkConfFromBytes(b)
	if err != nil || parsed.Name != "weft" || parsed.CNIVersion != "1.1.0" {
		t.Errorf("%+v, %v", parsed, err)
	}
	for _, part := range []string{
		`"mtu": 1400`, `"subnet": "10.244.1.0/24"`, `"subnet": "fd00:1::/64"`, `"type": "calico"`,
		`"derivedFrom": "the prefixes of node n1"`,
	} {
		if !strings.Contains(string(b), part) {
			t.Errorf("%s is not in\n%s", part, b)
		}
	}
	files(t, c.ConfDir, map[string]string{"00-first.conf": list("x")})
	own.MTU = 0
	changes, err := Cluster(t.Context(), c, own)
	if !errors.Is(err, ErrNotFirst) || says(c, changes) != "installed 00-weft.conflist\n" {
		t.Errorf("%s, %v", says(c, changes), err)
	}
	if want := "configuration " + c.ConfDir + "/00-first.conf: the runtime uses it instead of weft's: pods get network " +
		`"x", without weft's policies`; fault(t, err).Msg != want {
		t.Errorf("%v", err)
	}
	for name, text := range map[string]string{
		"inlined":     `"delegates": [{"name": "theirs", "type": "ptp"}]`,
		"by its file": `"clusterNetwork": "/host/etc/cni/net.d/10-theirs.conflist"`,
	} {
		files(t, c.ConfDir, map[string]string{
			"00-first.conf": `{"cniVersion": "0.3.1", "name": "m", "type": "multus-shim", ` + text + `}`,
		})
		if _, err := Cluster(t.Context(), c, own); !errors.Is(err, ErrNotFirst) {
			t.Errorf("Multus with another network, %s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"Multus with weft's file": `{"cniVersion": "0.3.1", "name": "m", "type": "multus-shim",
			"clusterNetwork": "/host/etc/cni/net.d/00-weft.conflist"}`,
		"Multus with weft inlined": `{"cniVersion": "0.3.1", "name": "m", "type": "multus",
			"delegates": [{"name": "weft", "type": "weft-cni"}]}`,
		"Multus": `{"cniVersion": "0.3.1", "name": "m", "type": "multus-shim"}`,
		"a meta plugin that names the file": `{"cniVersion": "0.3.1", "name": "m", "type": "genie",
			"default": "/etc/cni/net.d/00-weft.conflist"}`,
		"the loopback network": `{"cniVersion": "0.3.1", "name": "lo", "type": "loopback"}`,
		"no configuration":     `{`,
	} {
		files(t, c.ConfDir, map[string]string{"00-first.conf": text})
		if _, err := Cluster(t.Context(), c, own); err != nil {
			t.Errorf("%s comes first: %v", name, err)
		}
	}
	files(t, c.ConfDir, map[string]string{clusterName: `{}`})
	if _, err := Cluster(t.Context(), c, own); err == nil ||
		fault(t, err).Msg != "configuration "+c.ConfDir+"/00-weft.conflist: not weft's, and nothing was changed" {
		t.Errorf("%v", err)
	}
}

// TestOwn: the plugins of the network for each design and each source of addresses.
func TestOwn(t *testing.T) {
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:1::/64")}
	for name, want := range map[string]struct {
		own  Own
		text string
	}{
		"routed": {
			Own{
				CIDRs: prefixes, MTU: 1400,
			},
			`{"ipam":{"ranges":[[{"subnet":"10.244.1.0/24"}],[{"subnet":"fd00:1::/64"}]],"type":"host-local"},"mtu":1400,"policy":{"type":"k8s"},"type":"calico"}`,
		},
		"usual MTU": {
			Own{
				CIDRs: prefixes[:1],
			},
			`{"ipam":{"ranges":[[{"subnet":"10.244.1.0/24"}]],"type":"host-local"},"mtu":1500,"policy":{"type":"k8s"},"type":"calico"}`,
		},
		"permissions": {
			Own{Pools: []int{4}, Permit: []string{"floatingIPs", "allowedSourcePrefixes"}},
			`{"feature_control":{"floating_ips":true,"source_prefixes":true},"ipam":{"assign_ipv4":"true","assign_ipv6":"false","type":"calico-ipam"},"mtu":1500,"policy":{"type":"k8s"},"type":"calico"}`,
		},
		"pools": {
			Own{
				Pools: []int{4, 6},
			},
			`{"ipam":{"assign_ipv4":"true","assign_ipv6":"true","type":"calico-ipam"},"mtu":1500,"policy":{"type":"k8s"},"type":"calico"}`,
		},
		"pools of IPv6": {
			Own{
				CIDRs: prefixes, Pools: []int{6},
			},
			`{"ipam":{"assign_ipv4":"false","assign_ipv6":"true","type":"calico-ipam"},"mtu":1500,"policy":{"type":"k8s"},"type":"calico"}`,
		},
		"bridge": {
			Own{CIDRs: prefixes[:1], Bridge: true},
			`{"bridge":"weft0","hairpinMode":true,"ipam":{"ranges":[[{"subnet":"10.244.1.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}],"type":"host-local"},` +
				`"isGateway":true,"type":"bridge"}`,
		},
		"probed": {
			Own{CIDRs: prefixes[:1], Bridge: true, DADTimeout: 200 * time.Millisecond},
			`{"bridge":"weft0","dadTimeout":200,"hairpinMode":true,"ipam":{"ranges":[[{"subnet":"10.244.1.0/24"}]],` +
				`"routes":[{"dst":"0.0.0.0/0"}],"type":"host-local"},"isGateway":true,"type":"bridge"}`,
		},
		"trusted": {
			Own{CIDRs: prefixes[:1], Bridge: true, Unguarded: true},
			`{"bridge":"weft0","guard":false,"hairpinMode":true,"ipam":{"ranges":[[{"subnet":"10.244.1.0/24"}]],` +
				`"routes":[{"dst":"0.0.0.0/0"}],"type":"host-local"},"isGateway":true,"type":"bridge"}`,
		},
	} {
		if got, err := want.own.Plugin(); err != nil || string(got) != want.text {
			t.Errorf("%s: %v\n got %s\nwant %s", name, err, got, want.text)
		}
	}
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 2400 {
		if done() {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	t.Fatalf("not within a minute: %s", what)
}
