// SPDX-License-Identifier: Apache-2.0

package flannel_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/apitest"
)

// fields is an object of Kubernetes.
type fields = map[string]any

// kubed is a cluster whose nodes have their subnets from a Kubernetes.
type kubed struct {
	*cluster
	server  *apitest.Server
	netConf string
}

// on makes a cluster at a server that other clusters have used before.
func (s *kubed) on(t *testing.T, server *apitest.Server, conf string, more ...string) {
	t.Helper()
	s.server = server
	path := filepath.Join(t.TempDir(), "net-conf.json")
	if err := os.WriteFile(path, []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	s.args = append([]string{
		"--kube-subnet-mgr", "--ip-masq", "--kubeconfig-file=" + server.Kubeconfig(server.URL, ""),
		"--net-config-path=" + path,
	}, more...)
	s.netConf = path
	s.env = func(name string) []string { return []string{"NODE_NAME=" + name} }
	t.Cleanup(func() {
		for name := range s.nodes {
			s.server.Do(http.MethodDelete, "/api/v1/nodes/"+name, nil)
		}
	})
}

// node makes a machine and its Node.
func (s *kubed) node(num int, annotations fields) *node {
	s.t.Helper()
	n := s.cluster.node(num)
	if annotations == nil {
		annotations = fields{}
	}
	annotations["node.alpha.kubernetes.io/ttl"] = "0" // flannel's own daemon dies of a node without any
	v4, v6 := fmt.Sprintf("10.5.%d.0/24", num), fmt.Sprintf("fc00:5:0:%d::/64", num)
	s.server.Do(http.MethodPost, "/api/v1/nodes", fields{
		"apiVersion": "v1", "kind": "Node", "metadata": fields{"name": n.name, "annotations": annotations},
		"spec": fields{"podCIDR": v4, "podCIDRs": []string{v4, v6}},
	})
	return n
}

// said are the node's annotations and the condition NetworkUnavailable.
func (s *kubed) said(n *node) (annotations map[string]string, condition string) {
	s.t.Helper()
	var o struct {
		Metadata struct{ Annotations map[string]string }
		Status   struct {
			Conditions []struct{ Type, Status, Reason, Message string }
		}
	}
	if err := json.Unmarshal(s.server.Do(http.MethodGet, "/api/v1/nodes/"+n.name, nil), &o); err != nil {
		s.t.Fatal(err)
	}
	for _, c := range o.Status.Conditions {
		if c.Type == "NetworkUnavailable" {
			condition = strings.Join([]string{c.Status, c.Reason, c.Message}, ", ")
		}
	}
	return o.Metadata.Annotations, condition
}

const dual = `{"Network": "10.5.0.0/16", "EnableIPv6": true, "IPv6Network": "fc00:5::/48", "Backend": {"Type": "%s"}}`

// TestKube is everything that can be seen at one API server; each part has a cluster of its own.
func TestKube(t *testing.T) {
	first := newCluster(t)
	server := apitest.Start(t, first.hub, netip.MustParseAddr(hubAddr))
	for _, part := range []struct {
		name, backend string
		run           func(*kubed, string)
	}{
		{"mixed", "host-gw", (*kubed).mixed},
		{"mixed", "vxlan", (*kubed).mixed},
		{"take over", "vxlan", (*kubed).takeOver},
		{"annotations", "vxlan", (*kubed).annotated},
		{"away", "vxlan", (*kubed).away},
		{"bad", "vxlan", (*kubed).bad},
		{"renumbered", "vxlan", (*kubed).renumbered},
	} {
		t.Run(part.name+" "+part.backend, func(t *testing.T) {
			c := *first
			c.t, c.nodes = t, map[string]*node{}
			s := &kubed{cluster: &c}
			s.on(t, server, fmt.Sprintf(dual, part.backend))
			part.run(s, part.backend)
		})
	}
}

// mixed: one node with weft's daemon and one with flannel's own, both families.
func (s *kubed) mixed(string) {
	needReal(s.t)
	a, b := s.node(1, nil), s.node(2, nil)
	a.start(weft)
	b.start(real)
	a.podded()
	b.podded()
	s.reach(a, b)
}

// takeOver: weft's daemon takes the place of flannel's own, and gives it back.
func (s *kubed) takeOver(backend string) {
	needReal(s.t)
	a, b := s.node(1, nil), s.node(2, nil)
	a.start(real)
	b.start(real)
	a.podded()
	b.podded()
	s.reach(a, b)
	before, file, device := "", a.file(), a.device(backend)
	annotations, _ := s.said(a)
	flow := s.connect(a, b)
	for _, kind := range []string{weft, real, weft} {
		a.stop()
		a.start(kind, "--healthz-port=8081")
		s.until("ready", a.ready)
		flow.goesOn(50)
		now, condition := s.said(a)
		s.same(kind+": annotations", annotations, now)
		if before == "" {
			before = condition
		}
		s.same(kind+": condition", before, condition)
		if backend == "host-gw" { // flannel says 1450 for every family of vxlan, of which 20 are too many for IPv6
			s.same(kind+": subnet.env", file, a.file())
		}
		s.same(kind+": device", device, a.device(backend))
		s.reach(a, b)
	}
	flow.end()
}

// annotated: what a node says of itself, under any prefix, and what administrators say of it.
func (s *kubed) annotated(string) {
	s.args = append(s.args, "--kube-annotation-prefix=example.com/net")
	a := s.node(1, fields{
		"example.com/net-public-ip-overwrite": "203.0.113.9", "flannel.alpha.coreos.com/public-ip": "junk",
	})
	b := s.node(2, nil)
	s.node(3, nil) // takes no part
	a.start(weft)
	b.start(weft)
	const p = "example.com/net-"
	said := func(n *node) (out string) {
		all, condition := s.said(n)
		for _, key := range []string{"kube-subnet-manager", "backend-type", "public-ip", "public-ipv6"} {
			out += all[p+key] + " "
		}
		return out + condition
	}
	const up = "False, FlannelIsUp, Flannel is running on this node"
	for n, want := range map[*node]string{
		a: "true vxlan 203.0.113.9 fd07::1 " + up, b: "true vxlan 192.168.7.2 fd07::2 " + up,
	} {
		s.until(n.name+" says "+want, func() bool { return said(n) == want })
	}
	s.server.Do(http.MethodPatch, "/api/v1/nodes/"+b.name, fields{
		"metadata": fields{"annotations": fields{p + "backend-data": nil, p + "public-ip": "192.0.2.1"}},
	})
	s.until("what somebody took away is written again", func() bool {
		all, _ := s.said(b)
		return strings.Contains(all[p+"backend-data"], "VtepMAC") && all[p+"public-ip"] == "192.168.7.2"
	})
	s.until("no route to who takes no part", func() bool {
		routes := a.routes()
		return strings.Contains(routes, "10.5.2.0/24") && !strings.Contains(routes, "10.5.3.0/24")
	})
}

// away: nothing is torn down while the API server is away, also not by a daemon that starts, and a daemon that starts
// then is ready when the server is back.
func (s *kubed) away(string) {
	a, b := s.node(1, nil), s.node(2, nil)
	a.start(weft)
	b.start(weft)
	a.podded()
	b.podded()
	s.reach(a, b)
	flow, file := s.connect(a, b), a.file()
	s.server.Stop()
	flow.goesOn(100)
	a.stop()
	a.launch(weft, "--healthz-port=8081")
	flow.goesOn(100)
	if a.ready() {
		s.t.Error("ready, and it has not seen the cluster")
	}
	s.server.Again()
	s.until("ready", a.ready)
	s.same("subnet.env", file, a.file())
	s.reach(a, b)
	flow.end()
}

// bad: what the daemon says of a cluster that is none of its network, and what it does not wait for.
func (s *kubed) bad(string) {
	a := s.node(1, nil)
	nowhere := filepath.Join(a.dir, "nowhere")
	for _, tt := range []struct {
		conf, words string
		more, env   []string
	}{
		{
			`{"Network": "10.9.0.0/16", "Backend": {"Type": "vxlan"}}`,
			"node n1: its podCIDR 10.5.1.0/24 is not in the network 10.9.0.0/16", nil, nil,
		},
		{`{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlam"}}`, `Backend.Type "vxlam" is not known`, nil, nil},
		{`{"Network": "10.5.0.0/16", "Backend": {"Type": "ipsec"}}`, `Backend.Type "ipsec" is not supported`, nil, nil},
		{
			`{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}`,
			"no interface to the other nodes: --iface eth7: there is no interface of that name",
			[]string{"--iface=eth7"},
			nil,
		},
		{
			`{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}`, "--net-config-path: open " + nowhere,
			[]string{"--net-config-path=" + nowhere},
			nil,
		},
		{
			`{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}`, "kubernetes.kubeconfig \"" + nowhere,
			[]string{"--kubeconfig-file=" + nowhere},
			nil,
		},
		{
			`{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}`,
			`NODE_NAME, POD_NAME "p" and POD_NAMESPACE "" do not name the node`, nil,
			[]string{"POD_NAME=p"},
		},
	} {
		if err := os.WriteFile(s.netConf, []byte(tt.conf), 0o644); err != nil {
			s.t.Fatal(err)
		}
		if tt.env != nil {
			s.env = func(string) []string { return tt.env }
		}
		a.launch(weft, tt.more...)
		s.until(tt.words, func() bool { return a.ended() })
		log, err := os.ReadFile(a.run.log)
		if err != nil || !strings.Contains(string(log), tt.words) || a.run.cmd.ProcessState.ExitCode() != 1 {
			s.t.Errorf("%v: no %q in\n%s", err, tt.words, log)
		}
	}
	if _, err := os.Stat(a.subnetFile()); err == nil {
		s.t.Error("a subnet file of nothing")
	}
}
