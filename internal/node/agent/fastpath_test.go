// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/weft-net/weft/internal/kernel/fastpath"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/nodestatus"
)

// fastNode is a node whose network.fastPath is ebpf, with the pods web and client.
type fastNode struct {
	*leaver
	web, client *netns.NS
	addr        string // of web
}

// newFastNode starts its agent.
func newFastNode(t *testing.T) *fastNode {
	t.Helper()
	probe, err := fastpath.Load(nil)
	if err != nil {
		nettest.Skip(t, "no fast path: "+err.Error())
	}
	if err := probe.Close(); err != nil {
		t.Fatal(err)
	}
	return newFastNodeOf(t, "ebpf")
}

// newFastNodeOf does so with another network.fastPath.
func newFastNodeOf(t *testing.T, mode string) *fastNode {
	t.Helper()
	n := &fastNode{leaver: newLeaver(t, "routed"), web: pod(t), client: pod(t)}
	nettest.Run(t, n.node, "sysctl", "-qw", "net.netfilter.nf_conntrack_tcp_be_liberal=0")
	for _, name := range []string{"web", "client"} {
		n.object("pod-"+name, map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "default", "name": name},
			"spec": map[string]any{"nodeName": "n1", "containers": []any{map[string]any{"name": "c", "image": "i"}}},
		})
	}
	n.configured(mode, "off")
	n.start()
	list := n.conflist()
	n.attach(list, "client", n.client)
	n.addr = n.attach(list, "web", n.web)
	return n
}

// configured writes the configuration.
func (n *fastNode) configured(mode, level string) {
	n.t.Helper()
	b, err := os.ReadFile(n.config)
	if err != nil {
		n.t.Fatal(err)
	}
	text := string(b)
	if i := strings.Index(text, "fastPath: "); i >= 0 {
		text = text[:i] + text[i+strings.Index(text[i:], ",")+2:]
	}
	text = strings.Replace(text, "network: {", "network: {fastPath: "+mode+", ", 1)
	for _, have := range []string{"off", "flows"} {
		text = strings.Replace(text, "level: "+have, "level: "+level, 1)
	}
	n.write("weft.yaml", text, 0o644)
}

func (n *fastNode) attach(list *libcni.NetworkConfigList, name string, ns *netns.NS) string {
	n.t.Helper()
	conf := runtimeConf("id-"+name, ns)
	conf.Args = [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", name}}
	got, err := n.cni.AddNetworkList(n.ctx(), list, conf)
	if err != nil {
		n.t.Fatalf("%v: %s", err, n.log())
	}
	r, err := current.NewResultFromResult(got)
	if err != nil || len(r.IPs) == 0 {
		n.t.Fatal(err)
	}
	return r.IPs[0].Address.IP.String()
}

// fastPatience is how long anything may take on a busy host, also in an emulated VM.
const fastPatience = 5 * time.Minute

// status returns the agent's state.
func (n *fastNode) status() nodestatus.Status {
	n.t.Helper()
	// An agent on a slow host does not answer in time.
	for end := time.Now().Add(fastPatience); ; {
		var s nodestatus.Cluster
		cmd := exec.Command(filepath.Join(os.Getenv(binVar), "weft"), "status", "--state-dir", n.path("run", "weft"), "-o", "json")
		var out []byte
		if err := n.node.Do(func() (err error) { out, err = cmd.Output(); return err }); len(out) == 0 {
			n.t.Fatal(err)
		}
		err := json.Unmarshal(out, &s)
		if err == nil && len(s.Statuses) == 1 {
			return s.Statuses[0]
		}
		if err != nil || time.Now().After(end) {
			n.t.Fatalf("%v: %s\n%s", err, out, n.log())
		}
	}
}

// connect returns a connection from client to an echo server in web.
func (n *fastNode) connect(port string) net.Conn {
	n.t.Helper()
	var l net.Listener
	if err := n.web.Do(func() (err error) { l, err = net.Listen("tcp", ":"+port); return err }); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	var c net.Conn
	if err := n.client.Do(func() (err error) {
		c, err = net.DialTimeout("tcp", net.JoinHostPort(n.addr, port), 20*time.Second)
		return err
	}); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	return c
}

// echoes reports whether bytes come back.
func echoes(c net.Conn, limit time.Duration) bool {
	b := make([]byte, 100)
	_ = c.SetDeadline(time.Now().Add(limit))
	if _, err := c.Write(b); err != nil {
		return false
	}
	_, err := io.ReadFull(c, b)
	return err == nil
}

func (n *fastNode) liberal() string {
	n.t.Helper()
	return strings.TrimSpace(nettest.Run(n.t, n.node, "sysctl", "-n", "net.netfilter.nf_conntrack_tcp_be_liberal"))
}

// fast waits until packets of a connection take the fast path.
func (n *fastNode) fast(c net.Conn) {
	n.t.Helper()
	var first uint64
	for round := 0; ; round++ {
		for range 50 {
			if !echoes(c, 20*time.Second) {
				n.t.Fatal("nothing comes back")
			}
		}
		s := n.status().FastPath
		if s != nil && round > 0 && s.Packets >= first+50 {
			return
		}
		if s != nil {
			first = s.Packets
		}
		if round > 60 {
			n.t.Fatalf("nothing takes the fast path: %+v, %+v\n%s", s, n.status().Findings, n.log())
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// TestFastPath: established connections of pods take the fast path, and weft status says so; a policy that denies one ends it;
// if the agent is killed, connections continue, and an agent without the fast path restores the node's setting while they do.
func TestFastPath(t *testing.T) {
	n := newFastNode(t)
	c := n.connect("7000")
	n.fast(c)
	if s := n.status().FastPath; s.Mode != "ebpf" || s.Nodes != 1 || s.Links < 2 || s.Liberal != 1 || n.liberal() != "1" {
		t.Errorf("%+v, nf_conntrack_tcp_be_liberal %s", s, n.liberal())
	}
	deny := map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"metadata": map[string]any{"namespace": "default", "name": "deny"},
		"spec":     map[string]any{"podSelector": map[string]any{}, "policyTypes": []any{"Ingress"}},
	}
	kept := n.connect("7001")
	n.fast(kept)
	n.kill()
	if !echoes(kept, 20*time.Second) || n.liberal() != "1" {
		t.Error("a connection ends with the agent")
	}
	n.start()
	n.fast(kept)
	n.object("deny", deny)
	began := time.Now()
	for echoes(c, time.Second/2) {
		if time.Since(began) > fastPatience {
			t.Fatalf("a denied connection goes on\n%s", n.log())
		}
	}
	t.Logf("a denied connection ends after %s", time.Since(began)-time.Second/2)
	if err := os.Remove(filepath.Join(n.store, "deny.yaml")); err != nil {
		t.Fatal(err)
	}
	last := n.connect("7002")
	n.fast(last)
	n.kill()
	n.configured("off", "off")
	n.start()
	n.until("the setting is restored", func() bool { return n.liberal() == "0" })
	for range 20 {
		if !echoes(last, 20*time.Second) {
			t.Fatal("a connection ends when the fast path is switched off")
		}
	}
	if s := n.status(); s.FastPath != nil {
		t.Errorf("%+v", s.FastPath)
	}
}

// TestFastPathRests: with observe.level flows, every packet is counted, and weft status says why there is no fast path.
func TestFastPathRests(t *testing.T) {
	n := newFastNode(t)
	n.stop()
	n.configured("ebpf", "flows")
	n.start()
	c := n.connect("7000")
	n.until("the reason", func() bool {
		for _, f := range n.status().Findings {
			if strings.Contains(f.Message, "network.fastPath ebpf is not used: net.netfilter.nf_conntrack_acct is 1") {
				return true
			}
		}
		return false
	})
	for range 100 {
		if !echoes(c, 20*time.Second) {
			t.Fatal("nothing comes back")
		}
	}
	if s := n.status().FastPath; s.Packets > 0 || s.Nodes != 0 {
		t.Errorf("%+v", s)
	}
}

// forwarded returns how many packets of IPv4 a node's stack has forwarded.
func forwarded(t *testing.T, node *netns.NS) (count int) {
	t.Helper()
	var names []string
	for line := range strings.Lines(nettest.Run(t, node, "cat", "/proc/net/snmp")) {
		switch f := strings.Fields(line); {
		case f[0] == "Ip:" && names == nil:
			names = f
		case f[0] == "Ip:":
			if _, err := fmt.Sscan(f[slices.Index(names, "ForwDatagrams")], &count); err != nil {
				t.Fatal(err)
			}
		}
	}
	return count
}

// bypasses waits until packets of a connection are not forwarded by the stack.
func (n *fastNode) bypasses(c net.Conn) {
	n.t.Helper()
	for end := time.Now().Add(fastPatience); ; time.Sleep(200 * time.Millisecond) {
		before := forwarded(n.t, n.node)
		for range 20 {
			if !echoes(c, 20*time.Second) {
				n.t.Fatal("nothing comes back")
			}
		}
		if forwarded(n.t, n.node)-before < 10 {
			return
		}
		if time.Now().After(end) {
			n.t.Logf("nothing takes the fast path:\n%s", n.log())
			n.t.Fatalf("%+v, %+v", n.status().FastPath, n.status().Findings)
		}
	}
}

// TestFastPathFlowtable: the same by a flowtable. A policy that denies a connection ends it, and so does a rule of
// another program; connections continue when the agent is killed, which takes the flowtable with it, and when it is
// switched off and on.
func TestFastPathFlowtable(t *testing.T) {
	probe, err := fastpath.LoadFlowtable(nil)
	if err != nil {
		nettest.Skip(t, "no flowtables: "+err.Error())
	}
	if err := probe.Close(); err != nil {
		t.Fatal(err)
	}
	n := newFastNodeOf(t, "flowtable")
	kept, denied := n.connect("7001"), n.connect("7000")
	n.bypasses(kept)
	n.bypasses(denied)
	if s := n.status().FastPath; s.Mode != "flowtable" || s.Way != "flowtable" || s.Nodes != 1 || s.Links < 2 || n.liberal() != "0" {
		t.Errorf("%+v, nf_conntrack_tcp_be_liberal %s", s, n.liberal())
	}
	ends := func(c net.Conn, what string) {
		t.Helper()
		for end := time.Now().Add(fastPatience); echoes(c, 5*time.Second); {
			if time.Now().After(end) {
				t.Fatalf("%s\n%s", what, n.log())
			}
		}
	}
	n.object("deny", map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"metadata": map[string]any{"namespace": "default", "name": "deny"},
		"spec": map[string]any{
			"podSelector": map[string]any{}, "policyTypes": []any{"Ingress"},
			"ingress": []any{map[string]any{"ports": []any{map[string]any{"protocol": "TCP", "port": 7001}}}},
		},
	})
	ends(denied, "a denied connection goes on")
	n.bypasses(kept)
	n.kill()
	n.until("the flowtable is gone", func() bool {
		return !strings.Contains(nettest.Run(t, n.node, "nft", "list", "ruleset"), fastpath.FlowTable)
	})
	if !echoes(kept, 20*time.Second) {
		t.Error("a connection ends with the agent")
	}
	n.start()
	n.bypasses(kept)
	n.stop()
	n.configured("off", "off")
	n.start()
	if out := nettest.Run(t, n.node, "nft", "list", "ruleset"); strings.Contains(out, fastpath.FlowTable) || !echoes(kept, 20*time.Second) {
		t.Errorf("a connection ends when the flowtable is switched off, or its tables are left:\n%s", out)
	}
	n.stop()
	n.configured("flowtable", "off")
	n.start()
	n.bypasses(kept)
	nettest.Run(t, n.node, "nft", "add table inet other; add chain inet other f { type filter hook forward priority 0; }; "+
		"add rule inet other f tcp dport 7001 drop")
	ends(kept, "a connection goes on that a rule of another program drops")
}

// asked is a flow of UDP to a VM's address, whose pods answer with their names.
type asked struct{ net.Conn }

// name returns the name of the pod that answers, empty if none does.
func (a asked) name() string {
	b := make([]byte, 100)
	_ = a.SetDeadline(time.Now().Add(time.Second))
	if _, err := a.Write([]byte("?")); err != nil {
		return ""
	}
	n, err := a.Read(b)
	if err != nil {
		return ""
	}
	return string(b[:n])
}

// replies answers in a VM's pod.
func (m *vmPod) replies(t *testing.T, port int) {
	t.Helper()
	var c *net.UDPConn
	if err := m.ns.Do(func() (err error) {
		c, err = net.ListenUDP("udp4", &net.UDPAddr{Port: port})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		b := make([]byte, 100)
		for {
			_, from, err := c.ReadFromUDP(b)
			if err != nil {
				return
			}
			_, _ = c.WriteToUDP([]byte(m.id), from)
		}
	}()
}

// TestFastPathMigration: flows to a VM take the fast path, within its node and from another one, and lead to its pod on
// another node when it has moved there, and back.
func TestFastPathMigration(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "vxlan")
	probe, err := fastpath.Load(nil)
	if err != nil {
		nettest.SkipMissing(t, "no fast path: "+err.Error())
	}
	_ = probe.Close()
	p := newTwo(t, "fastPath: ebpf, "+twoPools)
	n1, n2 := p.nodes[0], p.nodes[1]
	args := func(name string, more ...[2]string) [][2]string {
		return append(more, [2]string{"K8S_POD_NAMESPACE", "default"}, [2]string{"K8S_POD_NAME", name})
	}
	vm := [2]string{"WEFT_VM", "default/db"}
	a := p.vmPodOf(n1, "a", args("a", vm))
	a.replies(t, 7005)
	peer1, peer2 := p.vmPodOf(n1, "peer1", args("peer1")).ns, p.vmPodOf(n2, "peer2", args("peer2")).ns
	p.answers(a, peer1, peer2)
	var flows []asked
	for _, peer := range []*netns.NS{peer1, peer2} {
		if err := peer.Do(func() error {
			c, err := net.Dial("udp", net.JoinHostPort(a.addrs[0].String(), "7005"))
			flows = append(flows, asked{c})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = flows[len(flows)-1].Close() })
	}
	lead := func(m *vmPod) {
		t.Helper()
		for i, f := range flows {
			p.until(fmt.Sprintf("flow %d leads to %s, now to %q", i, m.id, f.name()), func() bool { return f.name() == m.id })
			p.until(fmt.Sprintf("flow %d to %s takes the fast path", i, m.id), func() bool {
				before := forwarded(t, n1.node) + forwarded(t, n2.node)
				for range 20 {
					if f.name() != m.id {
						return false
					}
				}
				return forwarded(t, n1.node)+forwarded(t, n2.node)-before < 10
			})
		}
	}
	lead(a)
	b := p.vmPodOf(n2, "b", args("b", vm, [2]string{"WEFT_INCOMING", "1"}))
	b.replies(t, 7005)
	p.heard(b)
	lead(a)
	a.pause(t)
	b.speaks(t, b.addrs[0])
	lead(b)
	time.Sleep(time.Second) // packets from the source node are ignored at first
	p.heard(a)
	b.pause(t)
	a.resume(t)
	a.speaks(t, a.addrs[0])
	lead(a)
}
