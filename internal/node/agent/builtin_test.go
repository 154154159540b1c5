// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// linked is a node whose CNI binary directory has links to weft-cni under the names of plugins, and reference plugins
// that a runtime executes itself.
type linked struct{ *podnets }

func newLinked(t *testing.T) linked {
	t.Helper()
	bin := os.Getenv("WEFT_PEER_BIN_DIR")
	if bin == "" {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR is not set: no plugin of others executes an IPAM plugin of weft's")
	}
	p := linked{newPodnets(t)}
	p.env = nil
	if err := os.Mkdir(p.path("bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	shim := filepath.Join(os.Getenv(binVar), "weft-cni")
	for name, target := range map[string]string{
		"calico": shim, "calico-ipam": shim, "whereabouts": shim, "weft": shim, "macvlan": filepath.Join(bin, "macvlan"),
		"other-macvlan": filepath.Join(bin, "macvlan"), "tuning": filepath.Join(bin, "tuning"),
	} {
		if err := os.Symlink(target, p.path("bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	p.cni = libcni.NewCNIConfigWithCacheDir([]string{p.path("bin"), os.Getenv(binVar)}, p.path("cache"), &inNode{
		node: p.node,
	})
	return p
}

// lan is a network of the reference plugin macvlan with addresses of an IPAM plugin of that type: two, by its range.
func (p linked) lan(typ string) *libcni.NetworkConfigList {
	p.t.Helper()
	list, err := libcni.NetworkConfFromBytes(
		fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"lan","plugins":[{"type":"macvlan","master":"up0","socket":%q,
		"ipam":{"type":%q,"range":"10.55.0.0/24","range_start":"10.55.0.10","range_end":"10.55.0.11"}}]}`, p.socket(), typ))
	if err != nil {
		p.t.Fatal(err)
	}
	return list
}

func (p linked) attach(list *libcni.NetworkConfigList, id string, ns *netns.NS) string {
	p.t.Helper()
	return p.frees(list, id, ns)
}

// frees waits until an address can be allocated again.
func (p linked) frees(list *libcni.NetworkConfigList, id string, ns *netns.NS) string {
	p.t.Helper()
	var err error
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(50 * time.Millisecond) {
		var r *current.Result
		if r, err = p.add(list, id, ns); err == nil {
			return r.IPs[0].Address.IP.String()
		}
		if err := p.del(list, id, ns); err != nil { // as a runtime does it; the plugin leaves its link behind
			p.t.Errorf("DEL after an ADD that failed: %v", err)
		}
	}
	p.t.Fatalf("no address is free: %v\n%s", err, p.log())
	return ""
}

// TestIPAMForAnotherVendorsPlugin: the agent allocates addresses for a plugin that the runtime executes, through a link
// to weft-cni that has the IPAM plugin's name.
func TestIPAMForAnotherVendorsPlugin(t *testing.T) {
	nettest.EndToEnd(t)
	for _, typ := range []string{"whereabouts", "weft"} {
		t.Run(typ, func(t *testing.T) {
			p := newLinked(t)
			list := p.lan(typ)
			a, b, c := nettest.NS(t, "a"), nettest.NS(t, "b"), nettest.NS(t, "c")
			if _, err := p.add(list, "a", a); err == nil || !strings.Contains(err.Error(), "weft agent does not answer") {
				t.Errorf("ADD while there is no agent: %v", err)
			}
			if err := p.del(list, "a", a); err != nil {
				t.Errorf("DEL while there is no agent: %v", err)
			}
			p.start()
			first, second := p.attach(list, "a", a), p.attach(list, "b", b)
			if first == second || !strings.HasPrefix(first, "10.55.0.1") || !strings.HasPrefix(second, "10.55.0.1") {
				t.Errorf("addresses are %s and %s", first, second)
			}
			if out := nettest.Run(t, a, "ip", "-4", "-o", "addr", "show", "eth0"); !strings.Contains(out, first+"/24") {
				t.Errorf("eth0 has %s", out)
			}
			if _, err := p.add(list, "c", c); err == nil {
				t.Error("a third address out of two")
			}
			if err := p.del(list, "c", c); err != nil {
				t.Errorf("DEL after an ADD that failed: %v", err)
			}
			p.kill()
			p.start()
			for id, ns := range map[string]*netns.NS{"a": a, "b": b} {
				p.whole("CHECK "+id, func() error { return p.check(list, id, ns) })
			}
			if _, err := p.add(list, "c", c); err == nil {
				t.Error("an agent that was killed does not know the addresses any more")
			}
			if err := p.del(list, "c", c); err != nil {
				t.Errorf("DEL after an ADD that failed: %v", err)
			}
			if err := p.del(list, "a", a); err != nil {
				t.Errorf("DEL: %v", err)
			}
			if got := p.frees(list, "c", c); got != first {
				t.Errorf("after DEL of %s there is %s", first, got)
			}
			p.kill()
			if err := p.del(list, "b", b); err != nil {
				t.Errorf("DEL while the agent is away: %v", err)
			}
			p.start()
			if got := p.frees(list, "a", a); got != second {
				t.Errorf("after the queued DEL of %s there is %s", second, got)
			}
			p.whole("STATUS", func() error { return p.cni.GetStatusNetworkList(p.ctx(), list) })
			p.collected(list, typ, c, a)
		})
	}
}

// collected calls GC of the IPAM plugin: addresses without a valid attachment can be allocated again.
func (p linked) collected(list *libcni.NetworkConfigList, typ string, c, a *netns.NS) {
	p.t.Helper()
	conf := strings.Replace(string(list.Plugins[0].Bytes), "{",
		`{"name":"lan","cniVersion":"1.1.0","cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}],`, 1)
	cmd := exec.Command(p.path("bin", typ))
	cmd.Env = []string{"CNI_COMMAND=GC", "CNI_PATH=" + p.path("bin")}
	cmd.Stdin = strings.NewReader(conf)
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("GC: %v: %s", err, out)
	}
	if err := p.check(list, "a", a); err != nil {
		p.t.Errorf("CHECK of the valid one: %v", err)
	}
	if err := p.check(list, "c", c); err == nil {
		p.t.Error("CHECK of what was collected succeeds")
	}
}

// TestIPAMOfAForeignPlugin: the agent allocates addresses for a plugin that it executes itself, during the attachment's
// own call.
func TestIPAMOfAForeignPlugin(t *testing.T) {
	nettest.EndToEnd(t)
	p := newLinked(t)
	p.network("default", "wire",
		fmt.Sprintf(`{"cniVersion":"1.0.0","type":"other-macvlan","master":"up0","socket":%q,"ipam":{"type":"whereabouts",
		"range":"10.56.0.0/24","range_start":"10.56.0.10","range_end":"10.56.0.10"}}`, p.socket()))
	p.start()
	for i := range 3 { // there is one address: each is released
		pod := fmt.Sprint("pod", i)
		p.pod(pod, "wire")
		ns := nettest.NS(t, pod)
		var err error
		for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(50 * time.Millisecond) {
			if err = p.addPod(pod, ns); err == nil {
				break
			}
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, p.log())
		}
		if out := nettest.Run(t, ns, "ip", "-4", "-o", "addr", "show", "net1"); !strings.Contains(out, "10.56.0.10/24") {
			t.Errorf("net1 has %s", out)
		}
		list, conf := p.runtimes(pod, ns)
		p.whole("CHECK", func() error { return p.cni.CheckNetworkList(p.ctx(), list, conf) })
		if out := nettest.Run(t, ns, "nft", "list", "ruleset"); strings.Contains(out, "weft-ipam") {
			t.Errorf("the addresses are taken for an interface: %s", out)
		}
		if err := p.delPod(pod, ns); err != nil {
			t.Errorf("DEL: %v", err)
		}
	}
}

// TestUnservedPlugins: an agent without a datastore rejects plugins that need one, and does not execute the link to
// weft-cni, which would call the agent again. VERSION works without.
func TestUnservedPlugins(t *testing.T) {
	p := newLinked(t)
	p.args = nil
	for _, name := range []string{"calico", "calico-ipam", "whereabouts", "weft"} {
		cmd := exec.Command(p.path("bin", name))
		cmd.Env = []string{"CNI_COMMAND=VERSION"}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), `"supportedVersions"`) {
			t.Errorf("%s VERSION: %v: %s", name, err, out)
		}
	}
	p.start()
	ns := nettest.NS(t, "pod")
	list := p.lan("whereabouts")
	const want = `the agent of this node does not serve this plugin`
	if _, err := p.add(list, "a", ns); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("of another plugin: %v", err)
	}
	if err := p.del(list, "a", ns); err != nil {
		t.Errorf("DEL: %v", err)
	}
	own := p.list("1.0.0", `{"type":"ptp","ipam":{"type":"whereabouts","range":"10.55.0.0/24"}}`)
	if _, err := p.add(own, "b", ns); err == nil {
		t.Error("an attachment with whereabouts, and without a place for the cluster's objects")
	}
	if err := p.del(own, "b", ns); err != nil {
		t.Errorf("DEL: %v", err)
	}
}

// TestCalicosOwnList: the list that Calico's installation writes works unchanged, plugin by plugin, with the link
// instead of Calico's plugin.
func TestCalicosOwnList(t *testing.T) {
	nettest.EndToEnd(t)
	p := newLinked(t)
	p.object("pool", map[string]any{
		"apiVersion": "weft.dev/v1alpha1", "kind": "AddressPool", "metadata": map[string]any{"name": "pods"},
		"spec": map[string]any{
			"assignmentMode": "Automatic", "regions": []any{map[string]any{"cidr": "10.57.0.0/24", "blockSize": 28}},
		},
	})
	p.start()
	list, err := libcni.NetworkConfFromBytes(
		fmt.Appendf(
			nil, `{"name":"k8s-pod-network","cniVersion":"0.3.1","plugins":[{"type":"calico","socket":%q,"log_level":"info",
		"log_file_path":"/var/log/calico/cni/cni.log","datastore_type":"kubernetes","nodename":"n1","mtu":1400,"ipam":{"type":"calico-ipam"},
		"policy":{"type":"k8s"},"kubernetes":{"kubeconfig":"/etc/cni/net.d/calico-kubeconfig"}},
		{"type":"tuning","sysctl":{"net.ipv4.conf.all.log_martians":"1"}}]}`, p.socket()))
	if err != nil {
		t.Fatal(err)
	}
	before := nettest.Run(t, p.node, "ip", "-o", "link")
	ns := nettest.NS(t, "pod")
	p.pod("pod", "wire1")
	p.usual()
	conf := runtimeConf("id-pod", ns)
	conf.Args = [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", "default"},
		{"K8S_POD_NAME", "pod"},
		{"K8S_POD_INFRA_CONTAINER_ID", "id-pod"},
	}
	var result types.Result
	p.whole("ADD", func() (err error) {
		if result, err = p.cni.AddNetworkList(p.ctx(), list, conf); err != nil {
			_ = p.cni.DelNetworkList(p.ctx(), list, conf)
		}
		return err
	})
	r, err := current.NewResultFromResult(result)
	if err != nil || len(r.IPs) != 1 || !strings.HasPrefix(r.IPs[0].Address.IP.String(), "10.57.0.") {
		t.Errorf("%v %v", r, err)
	}
	if out := nettest.Run(t, ns, "ip", "route"); !strings.Contains(out, "default via 169.254.1.1 dev eth0") {
		t.Errorf("routes: %s", out)
	}
	if out := nettest.Run(t, ns, "ip", "-o", "link"); strings.Contains(out, "net1") {
		t.Errorf("a plugin that a runtime executes by itself has attached the pod to further networks: %s", out)
	}
	if err := p.cni.DelNetworkList(p.ctx(), list, conf); err != nil {
		t.Errorf("DEL: %v", err)
	}
	p.settledLinks(before)
}

// settledLinks waits until the node has its earlier links only.
func (p linked) settledLinks(before string) {
	p.t.Helper()
	var now string
	for begin := time.Now(); time.Since(begin) < 30*time.Second; time.Sleep(20 * time.Millisecond) {
		if now = nettest.Run(p.t, p.node, "ip", "-o", "link"); now == before {
			return
		}
	}
	p.t.Errorf("left: %s\nbefore: %s", now, before)
}
