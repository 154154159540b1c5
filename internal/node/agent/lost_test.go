// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// TestLostStateDirectory: an agent that has lost its state directory allocates no address of a running pod, and no
// denied datagram arrives at such a pod before, while and after the agent starts; a pod's DEL frees its address.
func TestLostStateDirectory(t *testing.T) {
	nettest.EndToEnd(t)
	lists := map[string]func(w *world) *libcni.NetworkConfigList{
		"routed": (*world).ownList,
		"bridge": func(w *world) *libcni.NetworkConfigList {
			return w.list("1.0.0", `{"name":"pods","cniVersion":"1.0.0","plugins":[{"type":"bridge","bridge":"br0","isGateway":true,
				"ipam":{"type":"whereabouts","range":"10.78.0.0/28"}}]}`)
		},
	}
	for name, list := range lists {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			manifests := t.TempDir()
			manifest := func(name, text string) {
				t.Helper()
				if err := os.WriteFile(manifests+"/"+name+".yaml", []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			manifest("ns", "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
			manifest("node",
				"{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {addresses: [{type: InternalIP, address: 192.168.77.1}]}}")
			names := []string{"peer", "db", "new0", "new1", "new2", "new3", "new4"}
			for _, name := range names {
				manifest(name, fmt.Sprintf(
					"{apiVersion: v1, kind: Pod, metadata: {name: %[1]s, namespace: shop, uid: uid-%[1]s, labels: {app: %[1]s}}, spec: {nodeName: n1}}",
					name))
			}
			manifest("policy", fmt.Sprintf(`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: narrow, namespace: shop}, spec: {
				podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress], ingress: [{ports: [{protocol: UDP, port: %d}]}]}}`, allowedPort))
			w.args = []string{"--store-dir", manifests, "--config", w.path("weft.yaml")}
			w.configured(fmt.Sprintf("install: {confDir: %q}\nmetrics: {address: '127.0.0.1:9119'}\n"+
				"network: {mode: cluster, pools: [{cidr: 10.77.0.0/28, blockSize: 28}]}\n", w.path("net.d")))
			w.start()
			list := list(w)
			holds := func(a netip.Addr) bool {
				return strings.Contains(w.web("GET /addresses HTTP/1.0"), fmt.Sprintf(`"address":%q`, a))
			}

			addrs := map[string]netip.Addr{}
			add := func(name string) *netns.NS {
				t.Helper()
				ns := nettest.NS(t, name)
				nettest.Run(t, ns, "ip", "link", "set", "lo", "up")
				occupy(t, ns) // as a pause container
				_, addr := w.shopPod(list, name, ns)
				for other, has := range addrs {
					if has == addr {
						t.Errorf("%s has the address %s, and %s has it", name, addr, other)
					}
				}
				addrs[name] = addr
				// Under the lock: the agent writes annotations of the same pod.
				objects, err := dir.Open(manifests)
				if err == nil {
					_, err = objects.Modify(t.Context(), store.PodKey("shop", name), func(fields map[string]any) error {
						fields["status"] = map[string]any{"podIP": addr.String()}
						return nil
					})
				}
				if err != nil {
					t.Fatal(err)
				}
				return ns
			}
			peer, db := add("peer"), add("db")
			at := listen(t, db)
			sent, stop := sends(t, peer, addrs["db"])
			defer stop()
			passes := func(when string) {
				t.Helper()
				n, out := at.allowed.Load(), sent.Load()
				for end := time.Now().Add(time.Minute); at.allowed.Load() < n+20 || sent.Load() < out+20; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("%s: what is allowed does not arrive\n%s", when, w.log())
					}
				}
			}
			passes("at first")
			w.kill()
			if err := os.RemoveAll(w.path("state")); err != nil {
				t.Fatal(err)
			}
			passes("without an agent")
			w.start()
			passes("with an agent without a state")
			for _, name := range names[2:] {
				add(name)
			}
			passes("with new pods")
			if n := at.denied.Load(); n > 0 {
				t.Errorf("%d denied datagrams arrived", n)
			}
			if !holds(addrs["db"]) {
				t.Fatalf("the address is not held")
			}
			conf := runtimeConf("id-db", db)
			if err := w.cni.DelNetworkList(w.ctx(), list, conf); err != nil {
				t.Fatal(err)
			}
			if holds(addrs["db"]) {
				t.Error("the address is held after the pod's DEL")
			}
			links := func() string { return nettest.Run(t, w.node, "ip", "-o", "link") }
			if left := w.lacks(links, "/id-db/"); left != "" {
				t.Errorf("the pod's interface exists after its DEL: %s", left)
			}
		})
	}
}

// ownList waits for the configuration that the agent has written to the runtime's directory.
func (w *world) ownList() *libcni.NetworkConfigList {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		list, err := w.own()
		if err == nil {
			return list
		}
		if time.Now().After(end) {
			w.t.Fatalf("no configuration within a minute: %v: %s", err, w.log())
		}
	}
}

// occupy runs a process in a namespace until the test ends.
func occupy(t *testing.T, ns *netns.NS) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := ns.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}
