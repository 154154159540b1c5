// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// put writes an object; pods are on the first node.
func (p two) put(kind, namespace, name string, annotations map[string]string) {
	p.t.Helper()
	p.putOn("n1", kind, namespace, name, annotations)
}

func (p two) putOn(node, kind, namespace, name string, annotations map[string]string) {
	p.t.Helper()
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": kind,
		"metadata": map[string]any{"name": name, "namespace": namespace, "uid": "uid-" + name, "annotations": annotations},
		"spec":     map[string]any{"nodeName": node},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	o, err := store.NewObject(raw)
	if err == nil {
		_, err = p.store.Create(p.t.Context(), o)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// named starts a pod of the cluster on the first node's own network.
func (p two) named(namespace, name string) (*netns.NS, netip.Addr, error) {
	p.t.Helper()
	return p.namedOn(p.nodes[0], namespace, name)
}

func (p two) namedOn(w *world, namespace, name string) (*netns.NS, netip.Addr, error) {
	p.t.Helper()
	var list *libcni.NetworkConfigList
	p.until("the network's configuration", func() bool {
		l, err := w.own()
		list = l
		return err == nil
	})
	ns := nettest.NS(p.t, name)
	conf := runtimeConf("id-"+name, ns)
	conf.Args = [][2]string{{"K8S_POD_NAMESPACE", namespace}, {"K8S_POD_NAME", name}, {"K8S_POD_UID", "uid-" + name}}
	got, err := w.cni.AddNetworkList(w.ctx(), list, conf)
	if err != nil {
		return ns, netip.Addr{}, err
	}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	raw, err := json.Marshal(got)
	if err == nil {
		err = json.Unmarshal(raw, &result)
	}
	if err != nil || len(result.IPs) == 0 {
		p.t.Fatalf("%s: %v", raw, err)
	}
	return ns, result.IPs[0].Address.Addr(), nil
}

// TestAnnotatedPods: Calico's annotations of pods and namespaces work on weft's own network: a namespace's pool, a
// pod's address and MAC address; an address in use is refused.
func TestAnnotatedPods(t *testing.T) {
	nettest.EndToEnd(t)
	p := newTwo(
		t,
		"masquerade: false, permit: [ipAddrsNoIpam], pools: [{name: green, cidr: 10.77.0.0/24, blockSize: 28}, {name: blue, cidr: 10.78.0.0/24, blockSize: 28}]",
	)
	const cni = "cni.projectcalico.org/"
	p.put("Namespace", "", "team", map[string]string{cni + "ipv4pools": `["blue"]`})
	p.put("Pod", "team", "follows", nil)
	p.put("Pod", "team", "differs", map[string]string{
		cni + "ipv4pools": `["10.77.0.0/24"]`, cni + "hwAddr": "02:00:00:00:00:77",
	})
	p.put("Pod", "team", "fixed", map[string]string{cni + "ipAddrs": `["10.78.0.9"]`})
	p.put("Pod", "team", "rival", map[string]string{cni + "ipAddrs": `["10.78.0.9"]`})
	p.put("Pod", "team", "brings", map[string]string{cni + "ipAddrsNoIpam": `["172.16.0.9"]`})
	p.put("Pod", "team", "floats", map[string]string{cni + "floatingIPs": `["192.0.2.9"]`})
	p.put("Pod", "team", "wrong", map[string]string{cni + "ipAddrs": `10.78.0.9`})
	within := func(name, prefix string) *netns.NS {
		t.Helper()
		ns, addr, err := p.named("team", name)
		if err != nil || !netip.MustParsePrefix(prefix).Contains(addr) {
			t.Errorf("%s: %s %v, want one of %s\n%s", name, addr, err, prefix, p.nodes[0].log())
		}
		return ns
	}
	within("follows", "10.78.0.0/24")
	if out := nettest.Run(t, within("differs", "10.77.0.0/24"), "ip", "link", "show", "eth0"); !strings.Contains(out,
		"02:00:00:00:00:77") {
		t.Error(out)
	}
	within("fixed", "10.78.0.9/32")
	within("brings", "172.16.0.9/32")
	for name, want := range map[string]string{
		"floats": "feature_control.floating_ips is off", "rival": "10.78.0.9",
		"wrong": "annotation cni.projectcalico.org/ipAddrs",
	} {
		if _, addr, err := p.named("team", name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s %v, want an error about %s", name, addr, err, want)
		}
	}
}
