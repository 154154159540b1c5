// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// datagrams sends one datagram after the other from a pod to another one, each when the answer to the one before has come.
// So an answer that does not come is a lost packet, however busy the host is.
type datagrams struct {
	stop chan struct{}
	done chan struct{}
	// sent and lost are valid when done is closed.
	sent, lost int
}

// socketIn opens a UDP socket in a pod's namespace.
func socketIn(t *testing.T, path string, open func() (*net.UDPConn, error)) *net.UDPConn {
	t.Helper()
	ns, err := netns.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	var conn *net.UDPConn
	if err := ns.Do(func() (err error) { conn, err = open(); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func sendDatagrams(t *testing.T, from, to lab.PodStatus) *datagrams {
	t.Helper()
	const port = 7070
	server := socketIn(t, to.Netns, func() (*net.UDPConn, error) {
		return net.ListenUDP("udp4", &net.UDPAddr{Port: port})
	})
	go func() {
		buf := make([]byte, 64)
		for {
			n, peer, err := server.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort(buf[:n], peer)
		}
	}()
	client := socketIn(t, from.Netns, func() (*net.UDPConn, error) {
		return net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.IPs[0], port)))
	})
	d := &datagrams{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(d.done)
		sent, got := make([]byte, 8), make([]byte, 8)
		for {
			select {
			case <-d.stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			d.sent++
			binary.BigEndian.PutUint64(sent, uint64(d.sent))
			_, err := client.Write(sent)
			_ = client.SetReadDeadline(time.Now().Add(10 * time.Second))
			for err == nil && !bytes.Equal(got, sent) {
				_, err = client.Read(got)
			}
			if err != nil {
				d.lost++
			}
		}
	}()
	return d
}

// end stops the datagrams, and fails the test if one was lost.
func (d *datagrams) end(t *testing.T) {
	t.Helper()
	close(d.stop)
	<-d.done
	t.Logf("%d datagrams, %d lost", d.sent, d.lost)
	if d.lost > 0 || d.sent == 0 {
		t.Errorf("%d of %d datagrams are lost", d.lost, d.sent)
	}
}

func podNamed(t *testing.T, st lab.Status, name string) lab.PodStatus {
	t.Helper()
	i := slices.IndexFunc(st.Pods, func(p lab.PodStatus) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("no pod %s: %+v", name, st.Pods)
	}
	return st.Pods[i]
}

func nodeNames(st lab.Status) (out []string) {
	for _, n := range st.Nodes {
		out = append(out, n.Name)
	}
	return out
}

// Nodes are added while pods of others exchange packets, of which none is lost, and removed. Nothing of them is left.
func TestAddAndRemoveNode(t *testing.T) {
	for _, c := range []struct{ name, encapsulation, addresses string }{
		{"host-gw", "host-gw", "podCIDRs"}, {"vxlan with pools", "vxlan", "pools"}, {"wireguard with pools", "wireguard", "pools"},
	} {
		t.Run(c.name, func(t *testing.T) { testAddAndRemoveNode(t, c.encapsulation, c.addresses) })
	}
}

func testAddAndRemoveNode(t *testing.T, encapsulation, addresses string) {
	dir := labDir(t)
	before := takeSnapshot(t, dir)
	must(t, "lab", "up", "--nodes", "2", "--from", examples2(t), "--dir", dir, "--encapsulation", encapsulation, "--addresses", addresses)
	allReach(t, dir, 4*3*6) // the mesh of new nodes has settled: their tunnels' addresses are those of their first blocks
	st := status(t, dir)
	d := sendDatagrams(t, podNamed(t, st, "one"), podNamed(t, st, "two"))
	must(t, "lab", "add-node", "--dir", dir, "node4", "edge")
	if got := nodeNames(status(t, dir)); !slices.Equal(got, []string{"node1", "node2", "node4", "edge"}) {
		t.Errorf("the nodes are %q", got)
	}
	manifest := write(t, "far.yaml", sleeper("far", "nodeName: edge, ")+"---\n"+sleeper("four", "nodeName: node4, "))
	must(t, "lab", "apply", "--dir", dir, "-f", manifest)
	allReach(t, dir, 8*7*6)
	addrs := slices.Concat(podNamed(t, status(t, dir), "far").IPs, podNamed(t, status(t, dir), "four").IPs)
	for _, n := range status(t, dir).Nodes[2:] {
		addrs = append(addrs, slices.Concat(n.Wires...)...)
	}
	must(t, "lab", "remove-node", "--dir", dir, "edge", "node4")
	d.end(t)
	expectForgotten(t, dir, addrs, "node4", "edge")
	allReach(t, dir, 4*3*6)

	// The same names again: with podCIDRs they have the same addresses.
	must(t, "lab", "add-node", "--dir", dir, "edge")
	must(t, "lab", "apply", "--dir", dir, "-f", write(t, "far.yaml", sleeper("far", "nodeName: edge, ")))
	allReach(t, dir, 6*5*6)
	must(t, "lab", "down", "--dir", dir)
	before.expectSame(t, dir)
}

// expectForgotten fails if something of removed nodes is left: in the store, in the state directory, or on the other nodes.
func expectForgotten(t *testing.T, dir string, addrs []netip.Addr, nodes ...string) {
	t.Helper()
	st := status(t, dir)
	for _, n := range nodes {
		if slices.Contains(nodeNames(st), n) {
			t.Errorf("node %s is in the status", n)
		}
		for _, path := range []string{lab.Dir(dir).NS(n), lab.Dir(dir).Node(n)} {
			if _, err := os.Stat(path); err == nil {
				t.Errorf("%s is left", path)
			}
		}
		for _, p := range processesOf(dir) {
			if strings.Contains(p, "/nodes/"+n+"/") {
				t.Errorf("process %s is left", p)
			}
		}
		for _, at := range []string{"store", "lab.json"} {
			if out, code := grep(t, n, filepath.Join(dir, at)); code == 0 {
				t.Errorf("%s names node %s:\n%s", at, n, out)
			}
		}
	}
	for _, n := range st.Nodes {
		text := ""
		for _, command := range []string{"ip -d route show table all", "ip -6 -d route show table all", "ip neigh show nud permanent", "bridge fdb"} {
			text += inNode(t, dir, n.Name, strings.Fields(command)...)
		}
		for _, a := range addrs {
			if names(text, a, st) {
				t.Errorf("node %s still has something for %s:\n%s", n.Name, a, text)
			}
		}
	}
	if a := weft(t, "ipam", "check", "--store-dir", filepath.Join(dir, "store")); a.code != 0 {
		t.Errorf("the audit finds:\n%s", a.stdout)
	}
}

// names reports whether a text has a word that is an address, or a prefix of pods around it that is no other node's.
func names(text string, a netip.Addr, st lab.Status) bool {
	for _, word := range strings.Fields(text) {
		if word == a.String() {
			return true
		}
		p, err := netip.ParsePrefix(word)
		if err != nil || !p.Contains(a) || strings.HasPrefix(word, "172.18.") || strings.HasPrefix(word, "fd18:") ||
			p.Bits() < map[bool]int{true: 24, false: 64}[a.Is4()] {
			continue
		}
		if !slices.ContainsFunc(st.Nodes, func(n lab.NodeStatus) bool { return slices.Contains(n.PodCIDRs, p) }) {
			return true
		}
	}
	return false
}

// grep searches files for a text, but for events, which outlive what they are about, and the controller's lease, which another
// node takes over when it has expired.
func grep(t *testing.T, text, path string) (string, int) {
	t.Helper()
	out, found := "", 1
	err := filepath.WalkDir(path, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(entry.Name(), "event-") ||
			strings.HasPrefix(entry.Name(), "lease-") {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && bytes.Contains(b, []byte(text)) {
			out, found = out+path+": "+string(b)+"\n", 0
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, found
}

// Commands about nodes that cannot be done change nothing.
func TestBadNodes(t *testing.T) {
	dir := labDir(t)
	must(t, "lab", "up", "--nodes", "2", "--wires", "1", "--dir", dir, "--cluster-cidr", "10.42.0.0/24")
	before, err := os.ReadFile(filepath.Join(dir, "lab.json"))
	if err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"add-node":                     "no node is named",
		"add-node node2":               "node node2 exists already",
		"add-node node3":               "cluster CIDR 10.42.0.0/24 is divided into 2 parts",
		"add-node wire0":               "the name is that of a wire",
		"add-node wires":               "the name is that of a wire",
		"add-node No_de":               `node "No_de"`,
		"add-node a-very-long-name":    "longer than 13 bytes",
		"add-node node3 node3":         "named twice",
		"remove-node node9":            `node "node9" not found`,
		"remove-node node1 node2":      "a lab has at least one node",
		"remove-node":                  "no node is named",
		"add-node node3 --wait -1s":    "--wait -1s is negative",
		"remove-node node2 --wait -1s": "--wait -1s is negative",
	} {
		a := weft(t, append([]string{"lab", "--dir", dir}, strings.Fields(command)...)...)
		if a.code == 0 || !strings.Contains(a.stderr, want) {
			t.Errorf("%s: exit %d, %s; want %q", command, a.code, a.stderr, want)
		}
	}
	after, err := os.ReadFile(filepath.Join(dir, "lab.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Errorf("the marker was %s, is %s", before, after)
	}
}

const policyForFront = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: one}
spec:
  podSelector: {matchLabels: {name: one}}
  ingress: [{from: [{podSelector: {matchLabels: {app: front}}}]}]
`

// A node is drained: its pods run elsewhere, and its addresses, routes and entries in policies are gone after it is removed,
// and are back when it is added again.
func TestDrainAndRemoveNode(t *testing.T) {
	from, dir := t.TempDir(), labDir(t)
	before := takeSnapshot(t, dir)
	one := strings.Replace(sleeper("one", "nodeName: node1, "), "{name: one}", "{name: one, labels: {name: one}}", 1)
	for name, text := range map[string]string{
		"one.yaml": one, "policy.yaml": policyForFront, "front.yaml": deployment("front", 4, "infinity"),
		"alone.yaml": sleeper("alone", "nodeName: node2, "),
	} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must(t, "lab", "up", "--nodes", "3", "--from", from, "--dir", dir, "--addresses", "pools", "--encapsulation", "vxlan")
	st := status(t, dir)
	var gone []netip.Addr
	for _, p := range st.Pods {
		if p.Node == "node2" {
			gone = append(gone, p.IPs...)
		}
	}
	if d := st.Deployments; len(d) != 1 || d[0].Ready != 4 || len(gone) < 4 {
		t.Fatalf("Deployments %+v, addresses on node2 %v", d, gone)
	}
	if a := weft(t, "lab", "drain", "--dir", dir, "node2"); a.code != 1 || !strings.Contains(a.stderr, "default/alone") ||
		!strings.Contains(a.stderr, "--force") {
		t.Errorf("drain of a pod without an owner: exit %d, %s", a.code, a.stderr)
	}
	if got := status(t, dir); got.Nodes[1].Unschedulable || got.Nodes[1].Pods != st.Nodes[1].Pods {
		t.Errorf("a drain that refuses has changed the node: %+v", got.Nodes[1])
	}
	must(t, "lab", "drain", "--dir", dir, "node2", "--force")
	st = status(t, dir)
	if n := st.Nodes[1]; !n.Unschedulable || n.Pods != 0 || n.Agent != lab.Running {
		t.Errorf("after the drain the node is %+v", n)
	}
	if d := st.Deployments; d[0].Ready != 4 || len(podsNamed(st, "alone")) != 0 {
		t.Errorf("after the drain: %+v, %+v", d, st.Pods)
	}
	must(t, "lab", "scale", "--dir", dir, "deployment/front", "--replicas", "6")
	if n := status(t, dir).Nodes[1]; n.Pods != 0 {
		t.Errorf("%d pods are bound to a drained node", n.Pods)
	}
	if text := must(t, "lab", "status", "--dir", dir).stdout; !strings.Contains(text, "disabled") || !strings.Contains(text, "6/6") {
		t.Errorf("the status prints\n%s", text)
	}
	must(t, "lab", "uncordon", "--dir", dir, "node2")
	must(t, "lab", "scale", "--dir", dir, "deployment/front", "--replicas", "8")
	st = status(t, dir)
	if n := st.Nodes[1]; n.Pods == 0 || n.Unschedulable {
		t.Errorf("no pods are bound to an uncordoned node: %+v", n)
	}

	// Removed with its pods: others are created for them, and policies have their addresses instead.
	for _, p := range st.Pods {
		if p.Node == "node2" {
			gone = append(gone, p.IPs...)
		}
	}
	gone = append(gone, slices.Concat(st.Nodes[1].Wires...)...)
	must(t, "lab", "remove-node", "--dir", dir, "node2")
	within(t, 60*waitUnit, "the replicas of node2 run elsewhere", func() bool {
		st, _ = degradedStatus(t, dir)
		return st.Deployments[0].Ready == 8
	})
	live := map[netip.Addr]bool{}
	for _, p := range st.Pods {
		for _, a := range p.IPs {
			live[a] = true
		}
	}
	gone = slices.DeleteFunc(gone, func(a netip.Addr) bool { return live[a] })
	expectForgotten(t, dir, gone, "node2")
	within(t, 60*waitUnit, "the rules of node1 have no address of node2", func() bool {
		rules := inNode(t, dir, "node1", "nft", "list", "ruleset")
		return !slices.ContainsFunc(gone, func(a netip.Addr) bool { return slices.Contains(words(rules), a.String()) })
	})
	if r := settled(t, dir); r.Denied == 0 {
		t.Errorf("reach after the removal: %+v", r)
	}

	must(t, "lab", "add-node", "--dir", dir, "node2")
	must(t, "lab", "apply", "--dir", dir, "-f", filepath.Join(from, "alone.yaml"))
	settled(t, dir)
	if a := weft(t, "ipam", "check", "--store-dir", filepath.Join(dir, "store")); a.code != 0 {
		t.Errorf("the audit finds:\n%s", a.stdout)
	}
	must(t, "lab", "down", "--dir", dir)
	before.expectSame(t, dir)
}

// words splits the text of rules.
func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,{}\n\t/", r) })
}

// add-node and remove-node that are killed at any moment are completed by the next one, and down removes everything.
func TestKilledAddAndRemoveNode(t *testing.T) {
	dir := labDir(t)
	before := takeSnapshot(t, dir)
	must(t, "lab", "up", "--nodes", "2", "--from", examples2(t), "--dir", dir, "--addresses", "pools")
	pod := write(t, "far.yaml", sleeper("far", "nodeName: node3, "))
	timed := func(args ...string) time.Duration {
		begun := time.Now()
		must(t, args...)
		return time.Since(begun)
	}
	add := timed("lab", "add-node", "--dir", dir, "node3")
	must(t, "lab", "apply", "--dir", dir, "-f", pod)
	remove := timed("lab", "remove-node", "--dir", dir, "node3")
	const rounds = 6
	hit, adding, removing := 0, nettest.NewAim(add), nettest.NewAim(remove)
	for i := range rounds {
		hit += killed(t, adding, "lab", "add-node", "--dir", dir, "node3")
		switch st, _ := degradedStatus(t, dir); {
		case slices.Contains(nodeNames(st), "node3"): // it was too late, or killed while it waited
		case i%2 == 0:
			must(t, "lab", "add-node", "--dir", dir, "node3")
		default: // what was begun is undone
			a := weft(t, "lab", "remove-node", "--dir", dir, "node3")
			if a.code != 0 && !strings.Contains(a.stderr, `node "node3" not found`) {
				t.Fatalf("round %d: remove-node: exit %d, %s", i, a.code, a.stderr)
			}
			expectForgotten(t, dir, nil, "node3")
			must(t, "lab", "add-node", "--dir", dir, "node3")
		}
		must(t, "lab", "apply", "--dir", dir, "-f", pod)
		allReach(t, dir, 6*5*6)
		addrs := podNamed(t, status(t, dir), "far").IPs
		hit += killed(t, removing, "lab", "remove-node", "--dir", dir, "node3")
		a := weft(t, "lab", "remove-node", "--dir", dir, "node3")
		if a.code != 0 && !strings.Contains(a.stderr, `node "node3" not found`) {
			t.Fatalf("round %d: remove-node: exit %d, %s", i, a.code, a.stderr)
		}
		within(t, time.Minute, "the agents have forgotten node3", func() bool {
			// The kernel's own neighbor entry of a node that does not answer any more may stay.
			known := inNode(t, dir, "node1", "ip", "route") + inNode(t, dir, "node1", "ip", "neigh", "show", "nud", "permanent") +
				inNode(t, dir, "node1", "bridge", "fdb")
			return !slices.Contains(words(known), "172.18.0.3")
		})
		expectForgotten(t, dir, addrs, "node3")
		allReach(t, dir, 4*3*6)
	}
	t.Logf("%d of %d kills hit a live command", hit, 2*rounds)
	if hit < rounds/2 {
		t.Errorf("only %d of %d kills hit a live command", hit, 2*rounds)
	}
	killed(t, adding, "lab", "add-node", "--dir", dir, "node3")
	must(t, "lab", "down", "--dir", dir)
	before.expectSame(t, dir)
}

// A node that fails does not stop the others with --keep-going: the summary says which and why, and the node can be started
// later. Without it nothing is left.
func TestKeepGoing(t *testing.T) {
	dir, from := labDir(t), t.TempDir()
	before := takeSnapshot(t, dir)
	for name, text := range map[string]string{
		"one.yaml": sleeper("one", "nodeName: node1, "), "two.yaml": sleeper("two", "nodeName: node2, "),
		"three.yaml": sleeper("three", "nodeName: node3, "),
		"bad.yaml":   strings.Replace(sleeper("bad", "nodeName: node3, "), "[sleep, infinity]", "[/no/such/program]", 1),
	} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	agent := filepath.Join(t.TempDir(), "agent")
	script := "#!/bin/sh\ncase \"$*\" in *'--node node2 '*) if test -e " + broken +
		"; then echo 'the disk is broken' >&2; exit 3; fi;; esac\nexec " + filepath.Join(nettest.Programs(t), "weft-agent") + " \"$@\"\n"
	if err := os.WriteFile(agent, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	up := []string{"lab", "up", "--nodes", "3", "--from", from, "--dir", dir, "--agent", agent}
	if a := weft(t, up...); a.code != 1 || !strings.Contains(a.stderr, "the disk is broken") {
		t.Errorf("without --keep-going: exit %d, %s", a.code, a.stderr)
	}
	before.expectSame(t, dir)

	a := weft(t, append(up, "--keep-going")...)
	last := a.stderr[strings.LastIndex(strings.TrimSpace(a.stderr), "is incomplete:")+1:]
	for _, want := range []string{
		"node node2: agent exited (exit status 3): the disk is broken", "pod default/two on node2: its node has failed",
		"pod default/bad on node3: ", "hint: see the logs in ",
	} {
		if a.code != 1 || !strings.Contains(last, want) {
			t.Errorf("with --keep-going: exit %d, no %q in\n%s", a.code, want, a.stderr)
		}
	}
	st, code := degradedStatus(t, dir)
	if code != 1 || st.Phase != "up" || st.Nodes[1].Agent == lab.Running || !podNamed(t, st, "one").Ready || !podNamed(t, st, "three").Ready {
		t.Errorf("status: exit %d, %+v, %+v", code, st.Nodes, st.Pods)
	}
	if !sometime(20*time.Second, func() bool { return pings(t, dir, "default/one", podNamed(t, st, "three").IPs[0].String()) }) {
		t.Error("the pods of the other nodes do not reach each other")
	}

	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	must(t, "lab", "restart", "--dir", dir, "node2")
	must(t, "lab", "restart", "--dir", dir, "node2", "--runtime")
	must(t, "lab", "delete", "--dir", dir, "pod/bad")
	within(t, 60*waitUnit, "the node's pod runs", func() bool {
		st, _ := degradedStatus(t, dir)
		return podNamed(t, st, "two").Ready
	})
	allReach(t, dir, 6*5*6)
	must(t, "lab", "down", "--dir", dir)
	before.expectSame(t, dir)
}

// A claim keeps its address when its node is removed with the pod, also in a pool that is full otherwise.
func TestClaimOfARemovedNode(t *testing.T) {
	dir := labDir(t)
	from := filepath.Dir(write(t, "pool.yaml", fmt.Sprintf(smallPool, "small", "10.42.0.0/28", 30)))
	must(t, "lab", "up", "--nodes", "2", "--from", from, "--dir", dir, "--addresses", "pools", "--cluster-cidr", "10.42.0.0/24")
	claimed := func(node string) string {
		return write(t, "db.yaml", "apiVersion: weft.dev/v1alpha1\nkind: AddressClaim\nmetadata: {name: db, namespace: default}\nspec: {}\n---\n"+
			strings.Replace(sleeper("db", "nodeName: "+node+", "), "{name: db}", "{name: db, annotations: {weft.dev/address-claim: db}}", 1))
	}
	must(t, "lab", "apply", "--dir", dir, "-f", claimed("node2"))
	had := podNamed(t, status(t, dir), "db").IPs
	must(t, "lab", "remove-node", "--dir", dir, "node2")
	must(t, "lab", "apply", "--dir", dir, "-f", write(t, "many.yaml", deployment("many", 15, "infinity")))
	for _, p := range podsNamed(status(t, dir), "many-") {
		if slices.Equal(p.IPs, had) {
			t.Errorf("pod %s has address %v of a claim", p.Name, had)
		}
	}
	must(t, "lab", "apply", "--dir", dir, "-f", claimed("node1"))
	if got := podNamed(t, status(t, dir), "db").IPs; !slices.Equal(got, had) {
		t.Errorf("the pod of the claim has %v, had %v", got, had)
	}
	if a := weft(t, "ipam", "check", "--store-dir", filepath.Join(dir, "store")); a.code != 0 {
		t.Errorf("the audit finds:\n%s", a.stdout)
	}
}
