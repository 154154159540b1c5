// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// flannelKeys is the prefix of flannel's annotations, ownKeys one that an administrator has chosen.
const flannelKeys, ownKeys = "flannel.alpha.coreos.com/", "example.org/net-"

// flannelNode is a node that ran flannel: its device, its plugin's pods, its files.
type flannelNode struct {
	*world
	i    int
	conf string // of the CNI plugin flannel
}

func vtep(i int) string { return fmt.Sprintf("02:00:00:00:0f:%02d", i) }

// flannel creates on node i of k what flanneld leaves, and routes to the others by what they publish.
func (k *kubeWorld) flannel(backend string, i, of int) flannelNode {
	k.t.Helper()
	w := k.nodes[i-1]
	ip := func(args string) { nettest.IP(k.t, w.node, args) }
	nettest.Run(k.t, w.node, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	data := "null"
	if backend == "vxlan" {
		data = fmt.Sprintf(`{"VNI":1,"VtepMAC":%q}`, vtep(i))
		ip(
			fmt.Sprintf(
				"link add flannel.1 address %s mtu 1450 type vxlan id 1 local 192.168.77.%d dev eth0 dstport 8472 nolearning",
				vtep(i), 10+i,
			),
		)
		ip(fmt.Sprintf("addr add 10.100.%d.0/32 dev flannel.1", i))
		ip("link set flannel.1 up")
	}
	for peer := 1; peer <= of; peer++ {
		switch {
		case peer == i:
		case backend == "vxlan":
			ip(fmt.Sprintf("neigh add 10.100.%d.0 lladdr %s dev flannel.1 nud permanent", peer, vtep(peer)))
			nettest.Run(k.t, w.node, "bridge", "fdb", "add", vtep(peer), "dev", "flannel.1", "dst",
				fmt.Sprintf("192.168.77.%d", 10+peer), "self", "permanent")
			ip(fmt.Sprintf("route add 10.100.%d.0/24 via 10.100.%d.0 dev flannel.1 onlink", peer, peer))
		default:
			ip(fmt.Sprintf("route add 10.100.%d.0/24 via 192.168.77.%d dev eth0", peer, 10+peer))
		}
	}
	k.annotate(i, flannelKeys, map[string]string{
		"kube-subnet-manager": "true", "backend-type": backend, "backend-data": data,
		"public-ip": fmt.Sprintf("192.168.77.%d", 10+i),
	})
	f := flannelNode{world: w, i: i}
	f.conf = fmt.Sprintf(
		`{"type":"flannel","subnetFile":%q,"dataDir":%q,"delegate":{"hairpinMode":true,"isDefaultGateway":true},"ipam":{"dataDir":%q}}`,
		w.path("subnet.env"), w.path("flannel"), w.path("addresses"))
	f.write(
		"subnet.env",
		fmt.Sprintf("FLANNEL_NETWORK=10.100.0.0/16\nFLANNEL_SUBNET=10.100.%d.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n",
			i),
	)
	f.write("net-conf.json", `{"Network": "10.100.0.0/16", "EnableNFTables": false, "Backend": {"Type": "`+backend+`"}}`)
	f.write("cni-conf.json", `{"name":"cbr0","cniVersion":"0.3.1","plugins":[`+f.conf+
		`,{"type":"portmap","capabilities":{"portMappings":true}}]}`)
	f.configured(
		fmt.Sprintf(
			"install: {confDir: %q}\nnetwork: {mode: flannel, masquerade: true}\nflannel: {netConf: %q, cniConf: %q, subnetFile: %q}\n",
			w.path("net.d"), w.path("net-conf.json"), w.path("cni-conf.json"), w.path("subnet.env")))
	w.args = append(w.args, "--config", w.path("weft.yaml"))
	return f
}

func (f flannelNode) write(name, text string) {
	f.t.Helper()
	if err := os.WriteFile(f.path(name), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// annotate writes flannel's annotations to a node.
func (k *kubeWorld) annotate(node int, begin string, values map[string]string) {
	all := map[string]string{}
	for key, v := range values {
		all[begin+key] = v
	}
	k.Do("PATCH", fmt.Sprint("/api/v1/nodes/n", node), fields{"metadata": fields{"annotations": all}})
}

// annotations returns those of a node, and its condition NetworkUnavailable.
func (k *kubeWorld) annotations(node int) (map[string]string, string) {
	var n struct {
		Metadata struct{ Annotations map[string]string }
		Status   struct {
			Conditions []struct{ Type, Status, Reason, Message string }
		}
	}
	if err := json.Unmarshal(k.Do("GET", fmt.Sprint("/api/v1/nodes/n", node), nil), &n); err != nil {
		k.t.Fatal(err)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == "NetworkUnavailable" {
			return n.Metadata.Annotations, c.Status + " " + c.Reason + " " + c.Message
		}
	}
	return n.Metadata.Annotations, ""
}

// plugin executes the plugin flannel by its name, like a runtime without an agent.
func (f flannelNode) plugin(verb, id string, ns *netns.NS) {
	f.t.Helper()
	cmd := exec.Command(filepath.Join(os.Getenv(binVar), "flannel"))
	cmd.Stdin = strings.NewReader(strings.Replace(f.conf, "{", `{"cniVersion":"0.3.1","name":"cbr0",`, 1))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+id, "CNI_IFNAME=eth0", "CNI_NETNS="+ns.Path(),
		"CNI_PATH=/nowhere",
		"WEFT_JOURNAL_DIR="+f.path("journal"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := f.node.Do(cmd.Start); err != nil {
		f.t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		f.t.Fatalf("flannel %s: %v\n%s", verb, err, &out)
	}
}

// placed returns the configuration that the agent wrote with a name before flannel's own.
func (f flannelNode) placed() *libcni.NetworkConfigList {
	f.t.Helper()
	text, err := os.ReadFile(f.path("net.d", "00-weft.conflist"))
	if err != nil {
		f.t.Fatal(err)
	}
	list, err := libcni.NetworkConfFromBytes(text)
	if err != nil {
		f.t.Fatal(err)
	}
	return list
}

// pinging sends a packet every 20 ms until the returned function is called, which returns how many were lost: of those
// before the last reply, because some may still be under way.
func pinging(t *testing.T, from *netns.NS, to string) (lost func() string) {
	t.Helper()
	cmd := exec.Command("ping", "-n", "-i", "0.02", to)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := from.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return func() string {
		time.Sleep(500 * time.Millisecond) // some more, after the last change
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
		answered, last := map[string]bool{}, 0
		for _, m := range regexp.MustCompile(`icmp_seq=(\d+) ttl`).FindAllStringSubmatch(out.String(), -1) {
			answered[m[1]] = true
			n, _ := strconv.Atoi(m[1])
			last = max(last, n)
		}
		if len(answered) < 5 || len(answered) != last {
			return fmt.Sprintf("%d of %d packets were answered: %s", len(answered), last, out.String())
		}
		return ""
	}
}

// links returns the node's links: number, name, MTU and MAC address of each.
func (f flannelNode) links() string {
	var all strings.Builder
	for line := range strings.Lines(nettest.Run(f.t, f.node, "ip", "-o", "link")) {
		fields := strings.Fields(line)
		at := slices.IndexFunc(fields, func(s string) bool { return strings.HasPrefix(s, "link/") })
		fmt.Fprintln(&all, fields[0], fields[1], fields[4], fields[at+1])
	}
	return all.String()
}

// TestFlannelTakenOver: two nodes of flannel with pods are migrated to weft one after the other. No link is
// re-created, no address changes, no neighbor entry is learned again, no packet between the pods is lost; and old pods
// are deleted by the agent.
func TestFlannelTakenOver(t *testing.T) {
	nettest.EndToEnd(t)
	t.Run("vxlan", func(t *testing.T) {
		nettest.Need(t, "vxlan")
		takenOver(t, "vxlan", "via 10.100.%d.0 dev flannel.1 proto 119")
	})
	t.Run("host-gw", func(t *testing.T) { takenOver(t, "host-gw", "via 192.168.77.1%d dev eth0 proto 119") })
}

func takenOver(t *testing.T, backend, way string) {
	k := newKubeWorld(t, 2)
	nodes := []flannelNode{k.flannel(backend, 1, 2), k.flannel(backend, 2, 2)}
	var pods []*netns.NS
	for i, n := range nodes {
		ns := nettest.NS(t, fmt.Sprint("old", i+1))
		n.plugin("ADD", fmt.Sprint("old", i+1), ns)
		pods = append(pods, ns)
	}
	k.until("flannel's own way", func() bool {
		_, err := nettest.Try(pods[0], "ping", "-n", "-c1", "-W1", "10.100.2.2")
		return err == nil
	})
	before, _ := k.annotations(1)
	lost := []func() string{pinging(t, pods[0], "10.100.2.2"), pinging(t, pods[1], "10.100.1.2")}
	for i, n := range nodes {
		links := n.links()
		n.start()
		k.until("weft's route to the other node, and that alone", func() bool {
			routes := nettest.Run(t, n.node, "ip", "route", "show", fmt.Sprintf("10.100.%d.0/24", 2-i))
			return strings.Count(routes, " via ") == 1 && strings.Contains(routes, fmt.Sprintf(way, 2-i))
		})
		k.until("the node's condition", func() bool {
			_, condition := k.annotations(i + 1)
			return condition == "False FlannelIsUp Flannel is running on this node"
		})
		if after := n.links(); after != links {
			t.Errorf("node %d has the links\n%s\nbefore\n%s", i+1, after, links)
		}
	}
	for i := range lost {
		if words := lost[i](); words != "" {
			t.Errorf("from old%d: %s", i+1, words)
		}
	}
	if after, _ := k.annotations(1); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("node 1 publishes %v, before %v", after, before)
	}
	if patches := k.writes("/api/v1/nodes/n1/status"); patches != 1 {
		t.Errorf("%d writes to node 1, want the one of its condition", patches)
	}
	n := nodes[0]
	k.until("the agent's configuration", func() bool {
		_, err := os.Stat(n.path("net.d", "00-weft.conflist"))
		return err == nil
	})
	ns := nettest.NS(t, "new")
	r, err := n.add(n.placed(), "new", ns)
	if err != nil || r.IPs[0].Address.String() != "10.100.1.3/24" {
		t.Fatalf("a new pod beside the old one: %v %v %s", r, err, n.log())
	}
	nettest.Run(t, ns, "ping", "-n", "-c1", "-W20", "10.100.2.2")
	nettest.Run(t, ns, "ping", "-n", "-c1", "-W20", "10.100.1.2")
	for id, ns := range map[string]*netns.NS{"old1": pods[0], "new": ns} {
		if err := n.del(n.placed(), id, ns); err != nil {
			t.Errorf("DEL of %s: %v", id, err)
		}
		k.until("no interface of "+id, func() bool {
			_, err := nettest.Try(ns, "ip", "link", "show", "eth0")
			return err != nil
		})
	}
	if left := n.files("addresses") + n.files("flannel"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// writes returns the requests that changed an object.
func (k *kubeWorld) writes(path string) (n int) {
	for _, r := range k.Seen() {
		if r.Method == "PATCH" && r.Path == path {
			n++
		}
	}
	return n
}

// TestFlannelAnnotations: a node with weft's own network publishes flannel's annotations, only when they change, and
// with an administrator's prefix.
func TestFlannelAnnotations(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "vxlan")
	k := newKubeWorld(t, 1)
	w := k.nodes[0]
	k.annotate(1, ownKeys, map[string]string{"public-ip-overwrite": "203.0.113.7"})
	w.configured(
		fmt.Sprintf(
			"install: {confDir: %q}\nnetwork: {mode: cluster, encapsulation: vxlan}\nflannel: {annotationPrefix: example.org/net}\n", w.path("net.d"),
		),
	)
	w.args = append(w.args, "--config", w.path("weft.yaml"))
	w.start()
	k.until("the condition", func() bool {
		_, c := k.annotations(1)
		return c == "False WeftIsUp weft is running on this node"
	})
	k.until("the device", func() bool {
		_, err := nettest.Try(w.node, "ip", "link", "show", "flannel.1")
		return err == nil
	})
	fields := strings.Fields(nettest.Run(t, w.node, "ip", "-o", "link", "show", "flannel.1"))
	mac := ""
	for i, f := range fields {
		if f == "link/ether" {
			mac = fields[i+1]
		}
	}
	if mac == state.SeedMAC("vtep/4/n1").String() {
		t.Errorf("the VtepMAC %s comes from the node's name", mac)
	}
	got, _ := k.annotations(1)
	for key, want := range map[string]string{
		"kube-subnet-manager": "true", "backend-type": "vxlan", "backend-data": fmt.Sprintf(`{"VNI":1,"VtepMAC":%q}`, mac),
		"public-ip": "203.0.113.7", "public-ip-overwrite": "203.0.113.7",
	} {
		if got[ownKeys+key] != want {
			t.Errorf("%s is %q, want %q", key, got[ownKeys+key], want)
		}
	}
	k.annotate(1, ownKeys, map[string]string{"public-ip": "10.9.9.9"}) // a mistake of an operator
	k.until("the right address again", func() bool {
		a, _ := k.annotations(1)
		return a[ownKeys+"public-ip"] == "203.0.113.7"
	})
	w.stop()
	k.Reset()
	w.start()
	k.until("a look at the node", func() bool {
		for _, r := range k.Seen() {
			if r.Method == "GET" && r.Path == "/api/v1/nodes/n1" {
				return true
			}
		}
		return false
	})
	k.annotate(1, ownKeys, map[string]string{"public-ip-overwrite": "203.0.113.8"})
	k.until("the other address", func() bool { a, _ := k.annotations(1); return a[ownKeys+"public-ip"] == "203.0.113.8" })
	k.annotate(1, ownKeys, map[string]string{"public-ip-overwrite": "nonsense"}) // is reported, and the node's address is not changed
	k.until("a word about it", func() bool {
		return strings.Contains(w.log(), `public-ip-overwrite \"nonsense\" is no address of its family`)
	})
	if n := k.writes("/api/v1/nodes/n1/status"); n != 1 {
		t.Errorf("%d writes, want the one of the other address", n)
	}
	nettest.Run(t, w.node, "ip", "link", "show", "flannel.1")
}

// TestNoFlannelConf: without flannel's configuration the agent reports what is missing, and changes nothing.
func TestNoFlannelConf(t *testing.T) {
	nettest.EndToEnd(t)
	for text, want := range map[string]string{
		"": "flannel.netConf: ",
		`{"Network":"10.0.0.0/8","Backend":{"Type":"ipsec"}}`: "ipsec",
		`{"Network":"10.0.0.0"}`:                              "Network",
	} {
		w := newWorld(t)
		if text != "" {
			if err := os.WriteFile(w.path("net-conf.json"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		w.configured(
			fmt.Sprintf("storeDir: %q\ninstall: {confDir: %q}\nnetwork: {mode: flannel}\nflannel: {netConf: %q}\n", w.dir,
				w.path("net.d"), w.path("net-conf.json")),
		)
		cmd := exec.Command(filepath.Join(os.Getenv(binVar), "weft-agent"), "agent", "--node", "n1", "--socket", w.socket(),
			"--state-dir", w.path("state"), "--config", w.path("weft.yaml"))
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) || !strings.Contains(string(out), "net-conf.json") {
			t.Errorf("%q: %v %s", text, err, out)
		}
	}
}
