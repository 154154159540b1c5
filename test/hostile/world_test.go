// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/weft-net/weft/internal/kernel/fastpath"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/tunnel/process"
)

// patience is how long anything may take on a busy VM.
const patience = time.Minute

// world is a cluster of two nodes on one wire, with an agent each, and libcni in the runtime's place.
type world struct {
	*testing.T
	spec
	dir   string
	wire  *netns.NS
	nodes []*node
	pods  map[string]*pod
	cni   *libcni.CNIConfig
}

// spec is what a world is like.
type spec struct {
	design, backend string
	// binding is how the attackers' guests are bound to their pods; "" is containers.
	binding model.VMBinding
	// fast is the nodes' network.fastPath, "" is off.
	fast string
}

// carries reports whether packets of a family get from node to node.
func (s spec) carries(family int) bool { return family == 0 || s.backend != "ipip" }

// onWire reports whether the pods' interfaces are on the nodes' own wire, and have no end on their node.
func (s spec) onWire() bool { return s.design == "macvlan" || s.design == "ipvlan" }

// need skips the test where the kernel lacks what the world is made of.
func (s spec) need(t *testing.T) {
	t.Helper()
	switch s.backend {
	case "vxlan", "ipip":
		nettest.Need(t, s.backend)
	case "wireguard", "udp": // which agents carry where the kernel does not
		nettest.Need(t, "tap")
	}
	if s.onWire() {
		nettest.Need(t, s.design)
	}
	switch s.fast {
	case "ebpf":
		path, err := fastpath.Load(nil)
		if err != nil {
			nettest.Skip(t, "no fast path: "+err.Error())
		}
		_ = path.Close()
	case flowtable:
		path, err := fastpath.LoadFlowtable(nettest.NS(t, "probe")) // other worlds probe at the same time
		if err != nil {
			nettest.Skip(t, "no flowtables: "+err.Error())
		}
		_ = path.Close()
	}
}

// apart is the feature for which the tests of a world have a name of their own, as not every kernel has it: make test-vm finds
// them by it. Words say where they run.
func (s spec) apart() (feature, words string) {
	switch {
	case s.design == "ipvlan":
		return "IPVlan", "where the kernel has it and by `make test-vm`"
	case s.fast == flowtable:
		return "Flowtable", "where the kernel has it and by `make test-vm`"
	case s.backend == "ipip":
		return "IPIP", "where the kernel has it and by `make test-vm`"
	case s.backend == "wireguard":
		return "WireGuard", "by the agents where the kernel has none and by the kernel in `make test-vm`"
	}
	return "", ""
}

// bridged reports whether the pods of a node are on a bridge.
func (s spec) bridged() bool { return s.design == "bridge" || s.design == "flannel" }

func (s spec) String() string {
	text := s.design + "/" + s.backend
	if s.binding != "" {
		text += "/" + string(s.binding)
	}
	if s.fast != "" {
		text += "/" + s.fast
	}
	return text
}

type node struct {
	w        *world
	name     string
	ns       *netns.NS
	addrs    []netip.Addr // IPv4, IPv6
	mac      mac
	podCIDRs []string
	agent    *exec.Cmd
	ended    chan error
}

// pod has one interface, eth0, on the cluster's network.
type pod struct {
	name  string
	node  *node
	ns    *netns.NS
	addrs []netip.Addr // IPv4, IPv6
	mac   mac
	conf  *libcni.RuntimeConf
	tap   *os.File // a guest's
}

// newWorld starts the nodes and their agents.
func newWorld(t *testing.T, as spec) *world {
	t.Helper()
	as.need(t)
	w := &world{T: t, spec: as, dir: t.TempDir(), pods: map[string]*pod{}, wire: nettest.NS(t, "wire")}
	w.cni = libcni.NewCNIConfigWithCacheDir([]string{filepath.Join(nettest.Programs(t), "cni")},
		filepath.Join(w.dir, "cache"), nil)
	if err := os.Mkdir(w.path("store"), 0o755); err != nil {
		t.Fatal(err)
	}
	nettest.IP(t, w.wire, "link add switch type bridge")
	nettest.IP(t, w.wire, "link set switch up")
	for i := 1; i <= 2; i++ {
		w.node(i)
	}
	w.manifests()
	for _, n := range w.nodes {
		if w.backend == "ipip" {
			n.foreignTunnels()
		}
		n.start()
	}
	return w
}

func (w *world) path(elem ...string) string {
	return filepath.Join(append([]string{w.dir}, elem...)...)
}

func (w *world) node(i int) {
	n := &node{w: w, name: fmt.Sprintf("n%d", i), mac: mac{2, 0, 0, 0, 1, byte(i)}}
	n.ns = nettest.NS(w, n.name)
	n.addrs = []netip.Addr{
		netip.MustParseAddr(fmt.Sprintf("192.168.77.%d", i)), netip.MustParseAddr(fmt.Sprintf("fd00:77::%d", i)),
	}
	n.podCIDRs = []string{fmt.Sprintf("10.99.%d.0/28", i), fmt.Sprintf("fd99:0:0:%d::/124", i)}
	nettest.IP(w, w.wire, "link add "+n.name+" type veth peer name eth0 netns "+n.ns.Path())
	nettest.IP(w, w.wire, "link set "+n.name+" master switch up")
	// The link-local address is there at once, and not in the middle of everything.
	nettest.Run(w, n.ns, "sysctl", "-qw", "net.ipv6.conf.eth0.accept_dad=0")
	for _, line := range []string{
		"link set lo up", fmt.Sprintf("link set eth0 address 02:00:00:00:01:0%d", i), "link set eth0 up",
		"addr add " + n.addrs[0].String() + "/24 dev eth0", "addr add " + n.addrs[1].String() + "/64 dev eth0 nodad",
		"route add default via 192.168.77.9", "route add default via fd00:77::9",
	} {
		nettest.IP(w, n.ns, line)
	}
	// The kernel's own check of sources stays out: weft's is tried.
	nettest.Run(w, n.ns, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0",
		"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	w.nodes = append(w.nodes, n)
	w.object("node-"+n.name, map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": n.name},
		"spec": map[string]any{"podCIDR": n.podCIDRs[0], "podCIDRs": n.podCIDRs},
		"status": map[string]any{"addresses": []any{
			map[string]any{"type": "InternalIP", "address": n.addrs[0].String()},
			map[string]any{"type": "InternalIP", "address": n.addrs[1].String()},
		}},
	})
}

// foreignTunnels makes tunnels that are not the mesh's, as an administrator may have: they take out what is in packets of
// any sender.
func (n *node) foreignTunnels() {
	for link, kind := range map[string]string{
		"sit9": "sit local " + n.addrs[0].String() + " mode ip6ip",
		"tnl9": "ip6tnl local " + n.addrs[1].String() + " mode any",
	} {
		n.w.until("a tunnel of type "+kind, func() bool { // the kernel may be loading its module for another world
			_, err := nettest.Try(n.ns, append([]string{"ip"}, strings.Fields("link add "+link+" type "+kind)...)...)
			return err == nil
		})
		nettest.IP(n.w, n.ns, "link set "+link+" up")
	}
}

// object writes a manifest into the cluster's store, or changes it.
func (w *world) object(file string, o any) {
	w.Helper()
	b, err := json.Marshal(o)
	path := w.path("store", file+".yaml")
	if err == nil {
		err = os.WriteFile(path+".new", b, 0o644)
	}
	if err = errors.Join(err, os.Rename(path+".new", path)); err != nil {
		w.Fatal(err)
	}
}

func (n *node) socket() string { return n.w.path(n.name, "agent.sock") }

// start starts the agent and waits until it answers.
func (n *node) start() {
	w := n.w
	w.Helper()
	conf := map[string]any{
		"node": n.name, "socket": n.socket(), "stateDir": w.path(n.name, "state"), "storeDir": w.path("store"),
		"addressDir": w.path(n.name, "addresses"),
		"logLevel":   "WARN", "install": map[string]any{"confDir": w.path(n.name, "net.d")},
		"network": map[string]any{
			"mode": "cluster", "design": w.design, "encapsulation": w.backend,
			"clusterCIDRs": []string{"10.99.0.0/16", "fd99::/48"}, "masquerade": true,
			"wireguardKeyFile": w.path(n.name, "wireguard.key"),
		},
	}
	if w.fast != "" {
		conf["network"].(map[string]any)["fastPath"] = w.fast
	}
	err := os.MkdirAll(w.path(n.name), 0o755)
	switch w.design {
	case "macvlan", "ipvlan":
		conf["network"].(map[string]any)["design"] = "routed"
		if w.backend == "none" {
			conf["network"] = map[string]any{"mode": "none"}
		}
	case "flannel":
		conf["network"] = map[string]any{"mode": "flannel", "masquerade": true}
		conf["flannel"] = map[string]any{
			"netConf": w.path(n.name, "net-conf.json"), "cniConf": w.path(n.name, "cni-conf.json"),
			"subnetFile": w.path(n.name, "subnet.env"),
		}
		conf["policy"] = map[string]any{"mode": "enforce"}
		err = errors.Join(err, n.flannel())
	}
	b, fault := json.Marshal(conf)
	if err = errors.Join(err, fault, os.WriteFile(w.path(n.name, "weft.yaml"), b, 0o644)); err != nil {
		w.Fatal(err)
	}
	log, err := os.OpenFile(w.path(n.name, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(filepath.Join(nettest.Programs(w), "weft-agent"), "agent", "--config", w.path(n.name, "weft.yaml"))
	cmd.Stderr, cmd.SysProcAttr = log, &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = n.ns.Do(cmd.Start)
	}
	if err != nil {
		w.Fatal(err)
	}
	n.agent, n.ended = cmd, make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		_, _ = out.Read(make([]byte, 64)) // it says so when it answers
		close(ready)
		n.ended <- cmd.Wait()
	}()
	w.Cleanup(n.kill)
	select {
	case <-ready:
	case <-time.After(patience):
		w.Fatalf("agent of %s is not ready: %s", n.name, n.log())
	}
}

// flannel writes what flannel's ConfigMap has.
func (n *node) flannel() error {
	w := n.w
	chain := fmt.Sprintf(
		`{"name": "cbr0", "cniVersion": "1.0.0", "plugins": [{"type": "flannel", "subnetFile": %q, "dataDir": %q, "ipam": {"dataDir": %q},
		"delegate": {"hairpinMode": true, "isDefaultGateway": true}}, {"type": "portmap", "capabilities": {"portMappings": true}}]}`,
		w.path(n.name, "subnet.env"), w.path(n.name, "flannel"), w.path(n.name, "addresses"))
	network := fmt.Sprintf(
		`{"Network": "10.99.0.0/16", "EnableIPv6": true, "IPv6Network": "fd99::/48", "Backend": {"Type": %q}}`, w.backend,
	)
	return errors.Join(os.WriteFile(w.path(n.name, "cni-conf.json"), []byte(chain), 0o600),
		os.WriteFile(w.path(n.name, "net-conf.json"), []byte(network), 0o600))
}

// endTunnels ends the process that forwards packets in user space, which outlives the agent, and waits for its end.
func (n *node) endTunnels() {
	n.w.Helper()
	socket := n.w.path(n.name, "state", process.SocketName)
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			n.w.Fatal(err)
		}
		left := false
		for _, line := range lines {
			b, err := os.ReadFile(line)
			if err != nil || !bytes.Contains(b, []byte("\x00"+socket+"\x00")) {
				continue
			}
			left = true
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(line))); err == nil {
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
		}
		if !left {
			return
		}
		if time.Now().After(end) {
			n.w.Fatalf("the tunnels of %s do not end", n.name)
		}
	}
}

// kill ends the agent; what it has written into the kernel stays.
func (n *node) kill() {
	if n.agent != nil {
		_ = n.agent.Process.Kill()
		<-n.ended
		n.agent = nil
	}
}

func (n *node) log() string {
	b, _ := os.ReadFile(n.w.path(n.name, "log"))
	return n.name + ": " + string(b[max(len(b)-3000, 0):])
}

// dump is what may be in the way, for the log of a failure: addresses, routes, neighbors and rules of the nodes and pods.
func (w *world) dump() string {
	var out strings.Builder
	show := func(name string, ns *netns.NS) {
		for _, line := range []string{
			"ip addr", "ip route", "ip -6 route", "ip neigh", "bridge fdb", "bridge link", "nft list ruleset", "conntrack -L",
		} {
			text, err := nettest.Try(ns, strings.Fields(line)...)
			fmt.Fprintf(&out, "== %s: %s (%v)\n%s\n", name, line, err, text)
		}
	}
	for _, n := range w.nodes {
		show(n.name, n.ns)
	}
	for name, p := range w.pods {
		show(name, p.ns)
	}
	return out.String()
}

// until waits for something.
func (w *world) until(what string, ok func() bool) {
	w.Helper()
	w.within(patience, what, ok)
}

func (w *world) within(limit time.Duration, what string, ok func() bool) {
	w.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("not within %s: %s\n%s\n%s\n%s", limit, what, w.nodes[0].log(), w.nodes[1].log(), w.dump())
		}
	}
}

// list is the network that the agent has put into the runtime's directory.
func (n *node) list() *libcni.NetworkConfigList {
	var list *libcni.NetworkConfigList
	if n.w.onWire() {
		i := n.name[1:]
		list, err := libcni.NetworkConfFromBytes(
			fmt.Appendf(
				nil, `{"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": "weft-cni", "socket": %q, "delegates": [
			{"cniVersion": "1.0.0", "name": "lan", "type": %q, "master": "eth0", "ipam": {"type": "host-local", "dataDir": %q, "ranges": [
				[{"subnet": "10.99.0.0/16", "rangeStart": "10.99.%s.2", "rangeEnd": "10.99.%s.13"}], [{"subnet": "fd99::/48", "rangeStart": "fd99:0:0:%s::2", "rangeEnd": "fd99:0:0:%s::d"}]]}}]}]}`,
				n.socket(), n.w.design, n.w.path(n.name, "addresses"), i, i, i, i))
		if err != nil {
			n.w.Fatal(err)
		}
		return list
	}
	n.w.until("the network's configuration of "+n.name, func() bool {
		b, err := os.ReadFile(n.w.path(n.name, "net.d", "00-weft.conflist"))
		if err == nil {
			list, err = libcni.NetworkConfFromBytes(b)
		}
		return err == nil
	})
	return list
}

// declare writes a Pod.
func (w *world) declare(name string, n *node, labels map[string]string) {
	w.object("pod-"+name, map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"namespace": "shop", "name": name, "uid": "uid-" + name, "labels": labels},
		"spec":     map[string]any{"nodeName": n.name, "containers": []any{map[string]any{"name": "c", "image": "i"}}},
	})
}

// add attaches a pod. It is tried again while the agent does not know everything.
func (w *world) add(name string, n *node, ns *netns.NS) *pod {
	w.Helper()
	list := n.list()
	p := &pod{
		name: name, node: n, ns: ns, conf: &libcni.RuntimeConf{ContainerID: "id-" + name, NetNS: ns.Path(), IfName: "eth0"},
	}
	p.conf.Args = [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", "shop"},
		{"K8S_POD_NAME", name},
		{"K8S_POD_UID", "uid-" + name},
		{"K8S_POD_INFRA_CONTAINER_ID", p.conf.ContainerID},
	}
	if (name == "near" || name == "far") && !w.onWire() {
		p.conf.CapabilityArgs = map[string]any{
			"portMappings": []any{map[string]any{"hostPort": hostPort, "containerPort": openPort, "protocol": "udp"}},
		}
	}
	if w.guest(name) {
		p.conf.Args = append(p.conf.Args, [2]string{"WEFT_VM", "shop/" + name})
	}
	w.until("ADD of "+name, func() bool {
		ctx, cancel := context.WithTimeout(w.Context(), patience)
		defer cancel()
		r, err := w.cni.AddNetworkList(ctx, list, p.conf)
		var fault *types.Error
		if errors.As(err, &fault) && (fault.Code == types.ErrTryAgainLater || fault.Code == types.ErrPluginNotAvailable) {
			return false
		}
		var res *current.Result
		if err == nil {
			res, err = current.NewResultFromResult(r)
		}
		if err != nil {
			w.Fatalf("ADD of %s: %v\n%s", name, err, n.log())
		}
		for _, ip := range res.IPs {
			a, _ := netip.AddrFromSlice(ip.Address.IP)
			p.addrs = append(p.addrs, a.Unmap())
		}
		return true
	})
	p.mac = linkMAC(w, ns, "eth0")
	w.pods[name] = p
	return p
}

// guest reports whether a pod is that of a guest: attackers are, where guests attack.
func (w *world) guest(name string) bool {
	return w.binding != "" && (name == "mallory" || name == "mute" || strings.HasPrefix(name, "early"))
}

// del detaches a pod.
func (w *world) del(p *pod) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	if err := w.cni.DelNetworkList(ctx, p.node.list(), p.conf); err != nil {
		w.Errorf("DEL of %s: %v\n%s", p.name, err, p.node.log())
	}
	delete(w.pods, p.name)
}

// linkMAC is the Ethernet address of a link.
func linkMAC(t testing.TB, ns *netns.NS, link string) mac {
	t.Helper()
	var links []struct{ Address string }
	if err := json.Unmarshal([]byte(nettest.Run(t, ns, "ip", "-j", "link", "show", "dev", link)), &links); err != nil ||
		len(links) != 1 {
		t.Fatalf("link %s: %v", link, err)
	}
	return parseMAC(t, links[0].Address)
}

// networkPolicy is a NetworkPolicy of pods of an app; from nil is no ingress rule, to likewise. In a rule, "" is
// everything.
func networkPolicy(name, app string, types []string, from string) map[string]any {
	spec := map[string]any{
		"podSelector": map[string]any{"matchLabels": map[string]string{"app": app}}, "policyTypes": types,
	}
	if from != "" {
		spec["ingress"] = []any{
			map[string]any{"ports": []any{map[string]any{"protocol": "UDP", "port": widePort}}},
			map[string]any{
				"from": []any{map[string]any{"podSelector": map[string]any{"matchLabels": map[string]string{"app": from}}}},
			},
		}
	}
	return map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"metadata": map[string]any{"namespace": "shop", "name": name}, "spec": spec,
	}
}

// manifests are the pods and what they may. What can be reached is closed but for friends; mute may send nothing.
func (w *world) manifests() {
	w.object("ns", map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
			"name": "shop", "labels": map[string]string{"kubernetes.io/metadata.name": "shop"},
		},
	})
	n1, n2 := w.nodes[0], w.nodes[1]
	for name, at := range map[string]*node{"mallory": n1, "mute": n1, "near": n1, "friend": n1, "far": n2, "guest": n2} {
		app := map[string]string{
			"near": "closed", "far": "closed", "friend": "friend", "guest": "friend", "mute": "mute", "mallory": "mallory",
		}[name]
		w.declare(name, at, map[string]string{"app": app})
	}
	w.object("policy-closed", networkPolicy("closed", "closed", []string{"Ingress"}, "friend"))
	w.object("policy-mute", networkPolicy("mute", "mute", []string{"Egress"}, ""))
}

// populate attaches the pods.
func (w *world) populate() {
	for _, name := range []string{"near", "friend", "mute", "mallory"} {
		p := w.add(name, w.nodes[0], w.podNS(name))
		if w.guest(name) {
			w.boot(p)
		}
	}
	for _, name := range []string{"far", "guest"} {
		w.add(name, w.nodes[1], w.podNS(name))
	}
}

func (w *world) podNS(name string) *netns.NS {
	ns := nettest.NS(w, name)
	nettest.IP(w, ns, "link set lo up")
	return ns
}

func parseMAC(t testing.TB, s string) mac {
	t.Helper()
	m, err := net.ParseMAC(s)
	if err != nil {
		t.Fatal(err)
	}
	return mac(m)
}

// macText is an Ethernet address as ip takes it.
func macText(m mac) string { return net.HardwareAddr(m).String() }
