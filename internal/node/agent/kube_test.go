// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// kubeWorld is an API server and nodes with agents, in namespaces on one bridge.
type kubeWorld struct {
	*apitest.Server
	*apitest.Proxy
	t     *testing.T
	ctl   *netns.NS
	nodes []*world
}

func newKubeWorld(t *testing.T, nodes int) *kubeWorld {
	t.Helper()
	k := &kubeWorld{t: t, ctl: nettest.NS(t, "ctl")}
	nettest.Run(t, k.ctl, "ip", "link", "add", "br0", "type", "bridge")
	nettest.Run(t, k.ctl, "ip", "addr", "add", "192.168.77.1/24", "dev", "br0")
	nettest.Run(t, k.ctl, "ip", "link", "set", "br0", "up")
	k.Server = apitest.Start(t, k.ctl, netip.MustParseAddr("192.168.77.1"))
	k.Proxy = k.Server.Proxy()
	for i := 1; i <= nodes; i++ {
		w := newWorld(t)
		up := fmt.Sprint("v", i)
		nettest.Run(t, k.ctl, "ip", "link", "add", up, "type", "veth", "peer", "name", "eth0", "netns", w.node.Path())
		nettest.Run(t, k.ctl, "ip", "link", "set", up, "master", "br0", "up")
		nettest.Run(t, w.node, "ip", "addr", "add", fmt.Sprintf("192.168.77.%d/24", 10+i), "dev", "eth0")
		nettest.Run(t, w.node, "ip", "link", "set", "eth0", "up")
		k.node(i, nil)
		w.args = []string{"--node", fmt.Sprint("n", i), "--kubeconfig", k.Kubeconfig(k.Proxy.URL, "")}
		k.nodes = append(k.nodes, w)
	}
	return k
}

type fields = map[string]any

// node creates the Node object with that number.
func (k *kubeWorld) node(i int, images []fields) {
	cidr := fmt.Sprintf("10.%d.%d.0/24", 100+i/200, i%200)
	k.Do("POST", "/api/v1/nodes", fields{
		"metadata": fields{
			"name": fmt.Sprint("n", i), "labels": fields{
				"kubernetes.io/hostname": fmt.Sprint("n", i), "topology.kubernetes.io/zone": "a",
			},
		},
		"spec": fields{"podCIDR": cidr, "podCIDRs": []string{cidr}},
		"status": fields{
			"addresses": []fields{{"type": "InternalIP", "address": fmt.Sprintf("192.168.%d.%d", 77+(10+i)/250, (10+i)%250)}},
			"images":    images,
		},
	})
}

// pod creates a Pod of a node and returns its UID.
func (k *kubeWorld) pod(name string, node int) (uid string) { return k.annotated(name, node, nil) }

func (k *kubeWorld) annotated(name string, node int, annotations map[string]string) (uid string) {
	k.t.Helper()
	var made struct{ Metadata struct{ UID string } }
	raw := k.Do("POST", "/api/v1/namespaces/default/pods", fields{
		"metadata": fields{"name": name, "annotations": annotations},
		"spec":     fields{"nodeName": fmt.Sprint("n", node), "containers": []fields{{"name": "c", "image": "i"}}},
	})
	if err := json.Unmarshal(raw, &made); err != nil {
		k.t.Fatal(err)
	}
	return made.Metadata.UID
}

// known waits until the snapshot of a node's agent has the pod.
func (k *kubeWorld) known(node int, pod string) {
	k.t.Helper()
	k.until("snapshot with "+pod, func() bool {
		b, _ := os.ReadFile(k.nodes[node-1].path("state", "cluster", "pods.json"))
		return strings.Contains(string(b), `"`+pod+`"`)
	})
}

// attached repeats an ADD that is to be tried again later (code 11), as a runtime does: an agent that has just started, or a
// server on a busy host, may not answer in time.
func (k *kubeWorld) attached(pod string, add func() error) {
	k.t.Helper()
	k.until("pod "+pod+" is attached", func() bool {
		err := add()
		if err != nil && code(err) != 11 {
			k.t.Fatalf("ADD of pod %s: %v", pod, err)
		}
		return err == nil
	})
}

func (k *kubeWorld) until(what string, ok func() bool) {
	k.t.Helper()
	for limit := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			var logs []string
			for _, w := range k.nodes {
				logs = append(logs, w.log())
			}
			k.t.Fatalf("%s: not within a minute: %s", what, strings.Join(logs, "\n"))
		}
	}
}

// routed waits until a node has the route to a prefix.
func (k *kubeWorld) routed(node int, route string) {
	k.t.Helper()
	k.until("route "+route, func() bool {
		return strings.Contains(nettest.Run(k.t, k.nodes[node-1].node, "ip", "route"), route)
	})
}

// pair is a pod's sandbox, as a runtime passes it.
type pair struct {
	w    *world
	list *libcni.NetworkConfigList
	conf *libcni.RuntimeConf
	ns   *netns.NS
}

func (k *kubeWorld) sandbox(name, uid string, node int) pair {
	w := k.nodes[node-1]
	ns := nettest.NS(k.t, name)
	conf := runtimeConf("id-"+name, ns)
	conf.Args = [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", "default"},
		{"K8S_POD_NAME", name},
		{"K8S_POD_INFRA_CONTAINER_ID", "id-" + name},
		{"K8S_POD_UID", uid},
	}
	ptp := fmt.Sprintf(`{"name":"net","cniVersion":"1.0.0","plugins":[{"type":"ptp","ipam":%s}]}`,
		w.ipam(fmt.Sprintf("10.100.%d.0/24", node)))
	return pair{w, w.list("1.0.0", ptp), conf, ns}
}

func (p pair) add() error {
	_, err := p.w.cni.AddNetworkList(p.w.ctx(), p.list, p.conf)
	return err
}

func (p pair) check() error { return p.w.cni.CheckNetworkList(p.w.ctx(), p.list, p.conf) }
func (p pair) del() error   { return p.w.cni.DelNetworkList(p.w.ctx(), p.list, p.conf) }

// waited returns the requests that a call may have waited for.
func (k *kubeWorld) waited() []string { return waited(k.Seen()) }

func waited(seen []apitest.Request) (out []string) {
	for _, r := range seen {
		if r.Method == "GET" && !background(r) {
			out = append(out, r.Method+" "+r.Path)
		}
	}
	return out
}

// background reports whether the agent makes a request at any time, whatever calls there are: it watches, lists a kind again
// whose watch has ended or that is not defined, or keeps the node's condition.
func background(r apitest.Request) bool {
	return r.Query.Has("watch") || r.Query.Has("resourceVersion") || strings.Contains(r.Path, "projectcalico.org/") ||
		strings.HasSuffix(r.Path, "/multi-networkpolicies") || strings.Contains(r.Path, "/flowlisteners") || strings.HasPrefix(r.Path, "/api/v1/nodes/")
}

// status returns the network status in the pod's annotation.
func (k *kubeWorld) status(pod string) string {
	return k.annotationsOf(pod)["k8s.v1.cni.cncf.io/network-status"]
}

func (k *kubeWorld) annotationsOf(pod string) map[string]string {
	var p struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal(k.Do("GET", "/api/v1/namespaces/default/pods/"+pod, nil), &p); err != nil {
		k.t.Fatal(err)
	}
	return p.Metadata.Annotations
}

// TestRequests counts the API requests of an ADD for a pod with three networks.
func TestRequests(t *testing.T) {
	nettest.EndToEnd(t)
	k := newKubeWorld(t, 1)
	k.defined("../../../deploy/nad-crd.yaml")
	const nads = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions"
	w := k.nodes[0]
	permitted := w.path("permitted.yaml")
	if err := os.WriteFile(permitted, fmt.Appendf(nil, "network: {permitPaths: [%q], podIPAnnotations: true}\n", w.path("addresses")),
		0o600); err != nil {
		t.Fatal(err)
	}
	w.args = append(w.args, "--config", permitted)
	k.Do("POST", nads, fields{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": fields{"name": "outside"},
		"spec": fields{
			"config": fmt.Sprintf(
				`{"cniVersion":"1.0.0","type":"bridge","bridge":"outside","ipam":{"type":"host-local","dataDir":%q,"subnet":"10.60.0.0/24"}}`, w.path("elsewhere"),
			),
		},
	})
	for i := 1; i <= 2; i++ {
		k.Do("POST", nads, fields{
			"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
			"metadata": fields{"name": fmt.Sprint("extra", i)},
			"spec": fields{
				"config": fmt.Sprintf(`{"cniVersion":"1.0.0","type":"bridge","bridge":"extra%d","ipam":%s}`, i,
					w.ipam(fmt.Sprintf("10.%d.0.0/16", 50+i))),
			},
		})
	}
	w.start()
	uid := k.annotated("p", 1, map[string]string{"k8s.v1.cni.cncf.io/networks": "extra1, extra2"})
	k.known(1, "p")
	k.until("networks", func() bool {
		b, _ := os.ReadFile(w.path("state", "cluster", "network-attachment-definitions.json"))
		return strings.Contains(string(b), "extra1") && strings.Contains(string(b), "extra2")
	})
	p := k.sandbox("p", uid, 1)
	bad := k.sandbox("bad", k.annotated("bad", 1, map[string]string{"k8s.v1.cni.cncf.io/networks": "outside"}), 1)
	k.known(1, "bad")
	err := bad.add()
	var refused *types.Error
	if !errors.As(err, &refused) || refused.Code != types.ErrInvalidNetworkConfig ||
		!strings.Contains(err.Error(), `ipam.dataDir "`+w.path("elsewhere")+`"`) ||
		!strings.Contains(err.Error(), "network default/outside") || !strings.Contains(err.Error(), "network.permitPaths") {
		t.Errorf("a network that names another directory of the node: %v", err)
	}
	if _, err := os.Stat(w.path("elsewhere")); err == nil {
		t.Error("the directory was made all the same")
	}
	k.Server.Stop() // nothing could be asked
	k.Reset()
	if err := p.add(); err != nil {
		t.Fatalf("%v %s", err, w.log())
	}
	if seen := k.waited(); len(seen) != 0 {
		t.Errorf("requests that ADD waited for: %v", seen)
	}
	for link, addr := range map[string]string{"eth0": "10.100.1.2", "net1": "10.51.0.2", "net2": "10.52.0.2"} {
		if got := nettest.Run(t, p.ns, "ip", "-o", "addr", "show", link); !strings.Contains(got, addr) {
			t.Errorf("%s: %s", link, got)
		}
	}
	k.Server.Restart()
	k.until("status", func() bool {
		s := k.status("p")
		return strings.Contains(s, "default/extra1") && strings.Contains(s, "10.52.0.2")
	})
	if got := k.annotationsOf("p")["cni.projectcalico.org/podIPs"]; got != "10.100.1.2/32" {
		t.Errorf("network.podIPAnnotations: %q", got)
	}
}

// TestKubernetes runs two nodes whose pods reach each other, and then stops the API server.
func TestKubernetes(t *testing.T) {
	nettest.EndToEnd(t)
	k := newKubeWorld(t, 2)
	for _, w := range k.nodes {
		w.start()
	}
	k.routed(1, "10.100.2.0/24 via 192.168.77.12")
	k.routed(2, "10.100.1.0/24 via 192.168.77.11")
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v\n%s\n%s", what, err, k.nodes[0].log(), k.nodes[1].log())
		}
	}
	a, b := k.sandbox("a", k.pod("a", 1), 1), k.sandbox("b", k.pod("b", 2), 2)
	k.known(1, "a")
	k.known(2, "b")
	k.Reset()
	k.attached("a", a.add)
	k.attached("b", b.add)
	if seen := k.waited(); len(seen) != 0 {
		t.Errorf("requests that ADD waited for: %v", seen)
	}
	nettest.Run(t, a.ns, "ping", "-c1", "-W20", "10.100.2.2")
	nettest.Run(t, b.ns, "ping", "-c1", "-W20", "10.100.1.2")
	late := k.sandbox("late", k.pod("late", 2), 1) // the first node's agent never sees it
	k.attached("late", func() error {
		k.Reset() // the server of a busy host may not answer in a second
		return late.add()
	})
	if seen := k.waited(); len(seen) != 1 || seen[0] != "GET /api/v1/namespaces/default/pods/late" {
		t.Errorf("requests for a pod that is not known yet: %v", seen)
	}
	k.until("status of a", func() bool { return strings.Contains(k.status("a"), "10.100.1.2") })

	c, d := k.sandbox("c", k.pod("c", 1), 1), k.sandbox("d", k.pod("d", 1), 1)
	k.known(1, "c")
	k.known(1, "d")
	foreign := k.pod("stranger", 2)
	k.Server.Stop()
	k.CloseConnections()
	must("ADD without the server", c.add())
	must("CHECK without the server", a.check())
	w := k.nodes[0]
	w.kill()
	w.start()
	must("ADD without the server, new agent", d.add())
	must("CHECK without the server, new agent", c.check())
	nettest.Run(t, d.ns, "ping", "-c1", "-W20", "10.100.2.2")
	must("DEL without the server", a.del())
	if err := k.sandbox("stranger", foreign, 1).add(); code(err) != 11 {
		t.Errorf("ADD of a pod that nobody knows: %v", err)
	}
	k.Server.Restart()
	k.until("status of d", func() bool { return strings.Contains(k.status("d"), "10.100.1.") })
	k.node(3, nil) // a node joins
	k.routed(1, "10.100.3.0/24 via 192.168.77.13")
	w.stop()
}
