// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// calicosList is what Calico v3.32 installs on a node as 10-calico.conflist (cni_network_config of its manifests), with
// its values for a node n1, and the socket of the test's agent.
const calicosList = `{
  "name": "k8s-pod-network",
  "cniVersion": "1.0.0",
  "plugins": [
    {
      "type": "calico",
      "log_level": "info",
      "log_file_path": "/var/log/calico/cni/cni.log",
      "datastore_type": "kubernetes",
      "nodename": "n1",
      "mtu": 0,
      "ipam": {
          "type": "calico-ipam"
      },
      "policy": {
          "type": "k8s"
      },
      "kubernetes": {
          "kubeconfig": "/etc/cni/net.d/calico-kubeconfig"
      }SOCKET
    },
    {
      "type": "portmap",
      "snat": true,
      "capabilities": {"portMappings": true}
    },
    {
      "type": "bandwidth",
      "capabilities": {"bandwidth": true}
    }
  ]
}`

// TestCalicosPublishedList: the list works with Calico's pools on a real API server, by links to weft-cni and
// weft-plugin under the plugins' names.
func TestCalicosPublishedList(t *testing.T) {
	nettest.EndToEnd(t)
	k := newKubeWorld(t, 1)
	k.defined("../../../deploy/crds/weft.dev_*.yaml")
	k.Do("POST", "/apis/weft.dev/v1alpha1/addresspools", fields{
		"apiVersion": "weft.dev/v1alpha1", "kind": "AddressPool", "metadata": fields{"name": "default-ipv4-ippool"},
		"spec": fields{"assignmentMode": "Automatic", "regions": []fields{{"cidr": "192.168.0.0/18", "blockSize": 26}}},
	})
	w := k.nodes[0]
	bin := w.path("bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string]string{
		"calico": "weft-cni", "calico-ipam": "weft-cni", "portmap": "weft-plugin", "bandwidth": "weft-plugin",
	} {
		if err := os.Symlink(filepath.Join(os.Getenv(binVar), program), filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	runtime := libcni.NewCNIConfigWithCacheDir([]string{bin}, w.path("cache"), &inNode{node: w.node})
	list, err := libcni.NetworkConfFromBytes(
		[]byte(strings.ReplaceAll(calicosList, "SOCKET", fmt.Sprintf(`, "socket": %q`, w.socket()))))
	if err != nil {
		t.Fatal(err)
	}
	w.start()
	links := func() string { return nettest.Run(t, w.node, "ip", "-o", "link") }
	before := links()
	p := k.sandbox("web", k.pod("web", 1), 1)
	k.known(1, "web")
	p.conf.CapabilityArgs = map[string]any{
		"portMappings": []fields{{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}},
		"bandwidth":    fields{"ingressRate": 8000000, "ingressBurst": 800000},
	}
	var r *current.Result
	k.until("a block of the pool", func() bool {
		result, err := runtime.AddNetworkList(w.ctx(), list, p.conf)
		if err == nil {
			r, err = current.NewResultFromResult(result)
		}
		if err != nil {
			_ = runtime.DelNetworkList(w.ctx(), list, p.conf)
		}
		return err == nil
	})
	if pool := netip.MustParsePrefix("192.168.0.0/18"); len(r.IPs) != 1 ||
		!pool.Contains(netip.MustParseAddr(r.IPs[0].Address.IP.String())) {
		t.Errorf("%+v", r)
	}
	if out := nettest.Run(t, p.ns, "ip", "route"); !strings.Contains(out, "default via 169.254.1.1 dev eth0") {
		t.Errorf("routes: %s", out)
	}
	nettest.Run(t, w.node, "ping", "-c1", "-W20", r.IPs[0].Address.IP.String())
	w.whole("CHECK", func() error { return runtime.CheckNetworkList(w.ctx(), list, p.conf) })
	w.whole("STATUS", func() error { return runtime.GetStatusNetworkList(w.ctx(), list) })
	if err := runtime.DelNetworkList(w.ctx(), list, p.conf); err != nil {
		t.Errorf("DEL: %v", err)
	}
	k.until("the pod's links gone", func() bool { return links() == before })
	if out := nettest.Run(t, w.node, "nft", "list", "ruleset"); strings.Contains(out, "8080") {
		t.Errorf("the port mapping is left: %s", out)
	}
}

// whereaboutsExamples are the configurations of the README of whereabouts v0.9.4, with the ranges of which each pod gets
// an address.
func whereaboutsExamples() map[string]struct {
	ipam   string
	ranges []string
} {
	return map[string]struct {
		ipam   string
		ranges []string
	}{
		"exclude": {
			`{"type": "whereabouts", "range": "192.168.2.225/28", "exclude": ["192.168.2.229/30", "192.168.2.236/32"]}`,
			[]string{"192.168.2.224/28"},
		},
		"ipv6": {
			`{"type": "whereabouts", "range": "2001::0/116", "gateway": "2001::f:1"}`, []string{"2001::/116"},
		},
		"ranges": {
			`{"type": "whereabouts", "ipRanges": [{"range": "192.168.10.1/24"}, {"range": "176.168.10.1/16"}]}`,
			[]string{"192.168.10.0/24", "176.168.0.0/16"},
		},
		"both": {
			`{"type": "whereabouts", "ipRanges": [{"range": "192.168.10.1/24"}, {"range": "176.168.10.1/16"}],
			"range": "abcd::1/64"}`, []string{"abcd::/64", "192.168.10.0/24", "176.168.0.0/16"},
		},
		"dualstack": {
			`{"type": "whereabouts", "ipRanges": [{"range": "192.168.10.1/24"}, {"range": "abcd::1/64"}]}`,
			[]string{"192.168.10.0/24", "abcd::/64"},
		},
		"end": {
			`{"type": "whereabouts", "range": "192.168.2.225-192.168.2.230/28"}`, []string{"192.168.2.224/28"},
		},
	}
}

// TestWhereaboutsPublishedExamples: the networks work on a real API server on two nodes, each pod with an address of its
// own, also where several networks have one range.
func TestWhereaboutsPublishedExamples(t *testing.T) {
	nettest.EndToEnd(t)
	k := newKubeWorld(t, 2)
	k.defined("../../../deploy/nad-crd.yaml")
	k.defined("../../../deploy/crds/weft.dev_*.yaml")
	for name, example := range whereaboutsExamples() {
		k.Do("POST", "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions", fields{
			"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": fields{"name": name},
			"spec": fields{"config": `{"cniVersion": "0.3.0", "name": "whereaboutsexample", "type": "macvlan", "master": "eth0",
				"mode": "bridge", "ipam": ` + example.ipam + `}`},
		})
	}
	for _, w := range k.nodes {
		w.start()
	}
	owner := map[netip.Addr]string{}
	for name, example := range whereaboutsExamples() {
		var pods []pair
		var first []netip.Addr
		for node := 1; node <= 2; node++ {
			pod := fmt.Sprint(name, node)
			uid := k.annotated(pod, node, map[string]string{"k8s.v1.cni.cncf.io/networks": name})
			k.known(node, pod)
			p := k.sandbox(pod, uid, node)
			var last error
			k.until(pod+" attached", func() bool {
				if last = p.add(); last != nil {
					_ = p.del()
				}
				return last == nil
			})
			addrs := globalAddrs(t, p.ns, "net1")
			for i, r := range example.ranges {
				if len(addrs) != len(example.ranges) || !containsAny(netip.MustParsePrefix(r), addrs) {
					t.Errorf("%s: addresses are %v, want one of range %d, %s", pod, addrs, i, r)
				}
			}
			for _, a := range addrs {
				if other := owner[a]; other != "" {
					t.Errorf("%s and %s have %s", other, pod, a)
				}
				owner[a] = pod
				for _, excluded := range []string{"192.168.2.228/30", "192.168.2.236/32"} {
					if name == "exclude" && netip.MustParsePrefix(excluded).Contains(a) {
						t.Errorf("%s has %s, which is excluded", pod, a)
					}
				}
			}
			if err := p.check(); err != nil {
				t.Errorf("%s: CHECK: %v", pod, err)
			}
			if first = append(first, addrs...); node == 2 {
				for _, a := range first[:len(first)/2] {
					nettest.Run(t, p.ns, "ping", "-c1", "-W20", a.String())
				}
			}
			pods = append(pods, p)
		}
		for _, p := range pods {
			if err := p.del(); err != nil {
				t.Errorf("%s: DEL: %v", name, err)
			}
		}
		clear(owner) // released
	}
}

// globalAddrs returns the addresses of a link that are not link-local.
func globalAddrs(t *testing.T, ns *netns.NS, link string) (out []netip.Addr) {
	t.Helper()
	for line := range strings.Lines(nettest.Run(t, ns, "ip", "-o", "addr", "show", "dev", link, "scope", "global")) {
		f := strings.Fields(line) // index, link, family, address
		p, err := netip.ParsePrefix(f[3])
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p.Addr())
	}
	return out
}

func containsAny(p netip.Prefix, addrs []netip.Addr) bool {
	for _, a := range addrs {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
