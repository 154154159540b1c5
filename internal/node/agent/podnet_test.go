// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// podnets is a node whose pods request further networks: its datastore is files.
type podnets struct {
	*world
	store string
	conf  string // the runtime's further keys
}

func newPodnets(t *testing.T) *podnets {
	t.Helper()
	nettest.Need(t, "macvlan")
	p := &podnets{world: newWorld(t)}
	p.store = p.path("store")
	if err := os.Mkdir(p.store, 0o755); err != nil {
		t.Fatal(err)
	}
	p.args = []string{"--store-dir", p.store}
	p.env = []string{"WEFT_PLUGIN_TIME=5s"} // on a busy host a plugin's program starts late
	p.uplink()
	return p
}

// uplink creates the parent interface of macvlan links on the node.
func (w *world) uplink() {
	w.t.Helper()
	for _, argv := range [][]string{
		{"ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1"},
		{"ip", "link", "set", "up0", "addrgenmode", "none", "up"},
		{"ip", "link", "set", "up1", "addrgenmode", "none", "up"},
	} {
		nettest.Run(w.t, w.node, argv...)
	}
	for _, link := range []string{"up0", "up1"} { // the kernel reports carriers up to a second late
		for until := time.Now().Add(
			30 * time.Second,
		); !strings.Contains(nettest.Run(w.t, w.node, "ip", "-o", "link", "show", link), "state UP"); {
			if time.Now().After(until) {
				w.t.Fatalf("%s has no carrier", link)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// network writes a NetworkAttachmentDefinition.
func (p *podnets) network(namespace, name, config string) {
	p.t.Helper()
	p.object("network-"+namespace+"-"+name, map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": map[string]any{"namespace": namespace, "name": name}, "spec": map[string]any{"config": config},
	})
}

// pod writes a Pod that requests networks.
func (p *podnets) pod(name, networks string) {
	p.t.Helper()
	p.object("pod-"+name, map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"namespace": "default", "name": name, "annotations": map[string]any{"k8s.v1.cni.cncf.io/networks": networks},
		},
		"spec": map[string]any{"nodeName": "n1", "containers": []any{map[string]any{"name": "c", "image": "i"}}},
	})
}

func (p *podnets) object(file string, o map[string]any) {
	p.t.Helper()
	b, err := yaml.Marshal(o)
	if err == nil {
		path := filepath.Join(p.store, file+".yaml")
		if err = os.WriteFile(path+".new", b, 0o644); err == nil {
			err = os.Rename(path+".new", path)
		}
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// usual are the networks of the tests.
func (p *podnets) usual() {
	p.t.Helper()
	for i := 1; i <= 3; i++ {
		p.network("default", fmt.Sprint("wire", i), p.wire(i, ""))
	}
	p.network("default", "other",
		fmt.Sprintf(`{"cniVersion":"1.0.0","plugins":[%s,{"type":"foreign","mark":%q}]}`, p.wire(4, ""), p.path("marks")))
}

// wire is a macvlan network on the uplink.
func (p *podnets) wire(i int, more string) string {
	return fmt.Sprintf(
		`{"cniVersion":"1.0.0","type":"macvlan","master":"up0","capabilities":{"ips":true,"mac":true},"ipam":{"type":"host-local",
		"dataDir":%q,"ranges":[[{"subnet":"10.6%d.0.0/24"}]]}%s}`, p.path("addresses"), i, more)
}

// runtimes returns the list and the arguments that a runtime passes for a pod.
func (p *podnets) runtimes(pod string, ns *netns.NS) (*libcni.NetworkConfigList, *libcni.RuntimeConf) {
	p.t.Helper()
	ptp := strings.Replace(p.networks()["ptp"], "{", `{"name":"pods",`, 1)
	list, err := libcni.NetworkConfFromBytes(
		fmt.Appendf(nil,
			`{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"weft-cni","socket":%q,"cniDir":%q%s,"delegates":[%s]}]}`,
			p.socket(), p.path("multus"), p.conf, ptp))
	if err != nil {
		p.t.Fatal(err)
	}
	conf := runtimeConf("id-"+pod, ns)
	conf.Args = [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", "default"},
		{"K8S_POD_NAME", pod},
		{"K8S_POD_INFRA_CONTAINER_ID", "id-" + pod},
	}
	return list, conf
}

func (p *podnets) addPod(pod string, ns *netns.NS) error {
	list, conf := p.runtimes(pod, ns)
	_, err := p.cni.AddNetworkList(p.ctx(), list, conf)
	return err
}

func (p *podnets) delPod(pod string, ns *netns.NS) error {
	list, conf := p.runtimes(pod, ns)
	return p.cni.DelNetworkList(p.ctx(), list, conf)
}

// warning waits for the pod's warning.
func (p *podnets) warning(pod string) string {
	p.t.Helper()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		files, _ := filepath.Glob(filepath.Join(p.store, "event-default-"+pod+".*.yaml"))
		for _, f := range files {
			var e struct{ Type, Reason, Message string }
			if b, err := os.ReadFile(f); err == nil && yaml.Unmarshal(b, &e) == nil && e.Type == "Warning" {
				return e.Reason + ": " + e.Message
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	p.t.Errorf("no warning for pod %s: %s", pod, p.log())
	return ""
}

// inside returns the state of the pod's namespace.
func inside(t *testing.T, ns *netns.NS) string {
	t.Helper()
	return nettest.Run(t, ns, "ip", "-o", "link") + nettest.Run(t, ns, "ip", "route", "show", "table", "all") +
		nettest.Run(t, ns, "nft", "list", "ruleset")
}

// said returns the error that a runtime gets.
func said(err error) (uint, string) {
	var e *types.Error
	if errors.As(err, &e) {
		return e.Code, e.Msg
	}
	b, _ := json.Marshal(err)
	return 0, fmt.Sprint(err, string(b))
}
