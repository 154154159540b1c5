// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// inNode executes plugins in the namespace of the node, as a runtime on it would.
type inNode struct {
	version.PluginDecoder
	node *netns.NS
}

func (e *inNode) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = bytes.NewReader(stdin), &out, &errs, environ
	err := e.node.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s%s", path, err, &out, &errs)
	}
	return out.Bytes(), nil
}

func (e *inNode) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}

// remembered is Multus's cache of one network of a sandbox, in its own format. Whole exists up to 4.3.0 and contains
// everything; later Bytes does.
type remembered struct {
	Conf              types.NetConf
	ConfList          types.NetConfList
	Whole             *libcni.NetworkConfigList `json:"CNINetworkConfigList,omitempty"`
	Name              string
	IfnameRequest     string `json:"ifnameRequest,omitempty"`
	IsFilterV4Gateway bool
	IsFilterV6Gateway bool
	Bytes             []byte
}

var counted = regexp.MustCompile(`packets \d+ bytes \d+`)

// multus is Multus on the node: the reference library and the reference plugins, and its cache.
type multus struct {
	*world
	lib *libcni.CNIConfig
	bin string
	// to43 is whether it remembers as up to 4.3.0.
	to43 bool
}

func newMultus(t *testing.T, to43 bool) *multus {
	t.Helper()
	bin := os.Getenv("WEFT_PEER_BIN_DIR")
	if bin == "" {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR is not set: no pod that Multus made is deleted")
	}
	nettest.Need(t, "macvlan")
	m := &multus{world: newWorld(t), bin: bin, to43: to43}
	m.uplink()
	nettest.Run(t, m.node, "ip", "link", "add", "br0", "type", "bridge")
	nettest.Run(t, m.node, "ip", "link", "set", "br0", "addrgenmode", "none", "up")
	m.lib = libcni.NewCNIConfigWithCacheDir([]string{bin}, m.path("multus"), &inNode{node: m.node})
	for _, name := range []string{"multus", "multus-shim"} {
		if err := os.MkdirAll(m.path("bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(os.Getenv(binVar), "weft-cni"), m.path("bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	m.cni = libcni.NewCNIConfigWithCacheDir([]string{m.path("bin"), bin}, m.path("cache"), m.patient())
	return m
}

// cluster is the node's own network, a list that Multus reads from a file; further is one that the pod requests.
func (m *multus) cluster() string {
	return fmt.Sprintf(
		`{"cniVersion":"0.4.0","name":"cbr0","plugins":[{"type":"bridge","bridge":"br0","isGateway":true,"ipMasq":true,"ipam":%s},
		{"type":"portmap","capabilities":{"portMappings":true}}]}`, m.ipam("10.8.0.0/16"))
}

func (m *multus) further(name string) string {
	return fmt.Sprintf(
		`{"cniVersion":"0.3.1","name":%q,"type":"macvlan","master":"up0","ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.61.0.0/24"}]]}}`,
		name, m.path("addresses"))
}

// attach performs an ADD like Multus.
func (m *multus) attach(id string, ns *netns.NS) {
	m.t.Helper()
	rt := func(ifName string) *libcni.RuntimeConf {
		return &libcni.RuntimeConf{
			ContainerID: id, NetNS: ns.Path(), IfName: ifName,
			Args: [][2]string{{"IgnoreUnknown", "true"}, {"K8S_POD_NAME", id}},
		}
	}
	list, err := libcni.NetworkConfFromBytes([]byte(m.cluster()))
	if err != nil {
		m.t.Fatal(err)
	}
	first := rt("eth0")
	first.CapabilityArgs = map[string]any{
		"portMappings": []map[string]any{{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}},
	}
	if _, err := m.lib.AddNetworkList(m.ctx(), list, first); err != nil {
		m.t.Fatal(err)
	}
	all := []remembered{
		{ConfList: types.NetConfList{CNIVersion: list.CNIVersion, Name: list.Name}, Name: "cbr0", Bytes: []byte(m.cluster())},
	}
	for _, p := range list.Plugins {
		all[0].ConfList.Plugins = append(all[0].ConfList.Plugins, p.Network)
	}
	if m.to43 {
		all[0].Whole = list
		if all[0].Bytes, err = json.Marshal(all[0].ConfList); err != nil { // without the keys that it does not know
			m.t.Fatal(err)
		}
	}
	for i, ifName := range []string{"net1", "lan"} {
		raw := m.further(fmt.Sprint("wire", i))
		conf, err := libcni.ConfFromBytes([]byte(raw))
		if err != nil {
			m.t.Fatal(err)
		}
		if _, err := m.lib.AddNetwork(m.ctx(), conf, rt(ifName)); err != nil {
			m.t.Fatal(err)
		}
		c := remembered{Conf: *conf.Network, Name: fmt.Sprint("default/wire", i), Bytes: []byte(raw)}
		if ifName == "lan" {
			c.IfnameRequest = ifName
		}
		if m.to43 {
			c.Whole = &libcni.NetworkConfigList{}
		}
		all = append(all, c)
	}
	b, err := json.Marshal(all)
	if err == nil {
		err = os.WriteFile(m.path("multus", id), b, 0o600)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// detach detaches like Multus, which can leave a plugin's state behind permanently.
func (m *multus) detach(id string, ns *netns.NS) {
	m.t.Helper()
	list, _ := libcni.NetworkConfFromBytes([]byte(m.cluster()))
	rt := &libcni.RuntimeConf{ContainerID: id, NetNS: ns.Path(), IfName: "eth0"}
	rt.CapabilityArgs = map[string]any{
		"portMappings": []map[string]any{{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}},
	}
	if err := m.lib.DelNetworkList(m.ctx(), list, rt); err != nil {
		m.t.Fatal(err)
	}
	for i, ifName := range []string{"net1", "lan"} {
		conf, _ := libcni.ConfFromBytes([]byte(m.further(fmt.Sprint("wire", i))))
		if err := m.lib.DelNetwork(m.ctx(), conf, &libcni.RuntimeConf{
			ContainerID: id, NetNS: ns.Path(), IfName: ifName,
		}); err != nil {
			m.t.Fatal(err)
		}
	}
	_ = os.Remove(m.path("multus", id))
}

// TestPodsOfMultus: pods that Multus attached with the reference plugins, before weft replaced it, are deleted as
// Multus would: from its cache, thin and thick, with and without their namespace, and while no agent runs.
func TestPodsOfMultus(t *testing.T) {
	nettest.EndToEnd(t)
	for _, form := range []struct {
		typ  string
		to43 bool
	}{{"multus", true}, {"multus", false}, {"multus-shim", true}} {
		t.Run(fmt.Sprint(form.typ, form.to43), func(t *testing.T) {
			m := newMultus(t, form.to43)
			warm := nettest.NS(t, "warm")
			m.attach("warm", warm)
			m.detach("warm", warm)
			list, err := libcni.NetworkConfFromBytes(
				fmt.Appendf(nil, `{"cniVersion":"0.4.0","name":"multus-cni-network","plugins":[{"type":%q,"socket":%q,"cniDir":%q,
				"binDir":%q,"clusterNetwork":%q,"capabilities":{"portMappings":true}}]}`, form.typ, m.socket(), m.path("multus"), m.bin, m.path("10-cluster.conflist")))
			if err == nil {
				err = os.WriteFile(m.path("10-cluster.conflist"), []byte(m.cluster()), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			before := m.whole()
			for !strings.Contains(before, "br0: <NO-CARRIER") { // a while after its last port is gone
				before = m.whole()
			}
			for _, how := range []string{"whole", "without", "away"} {
				ns := nettest.NS(t, how)
				empty := inside(t, ns)
				m.attach(how, ns)
				conf := runtimeConf(how, ns)
				if how != "away" {
					m.start()
				}
				if how == "without" {
					for _, ifName := range []string{"eth0", "net1", "lan"} {
						nettest.Run(t, ns, "ip", "link", "del", ifName)
					}
					conf.NetNS = ""
				}
				if err := m.cni.DelNetworkList(m.ctx(), list, conf); err != nil {
					t.Errorf("%s: DEL: %v\n%s", how, err, m.log())
				}
				if how == "away" {
					m.start()
				}
				m.same(how, before)
				if diff := m.reads(func() string { return inside(t, ns) }, empty); diff != "" {
					t.Errorf("%s: in the pod, %s", how, diff)
				}
				if err := m.cni.DelNetworkList(m.ctx(), list, conf); err != nil {
					t.Errorf("%s: DEL again: %v", how, err)
				}
				m.stop()
			}
		})
	}
}

// whole returns the host's state and Multus's cache, without what changes by itself: counters, and the bridge's own
// addresses.
func (m *multus) whole() string {
	var b strings.Builder
	for line := range strings.Lines(m.host() + m.files("multus")) {
		if !strings.Contains(line, "fe80::") {
			b.WriteString(counted.ReplaceAllString(line, ""))
		}
	}
	return b.String()
}

func (m *multus) same(how, before string) {
	m.t.Helper()
	var now string
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(30 * time.Millisecond) {
		if now = m.whole(); now == before {
			return
		}
	}
	m.t.Errorf("%s: before:\n%s\nafter:\n%s\nagent: %s", how, before, now, m.log())
}
