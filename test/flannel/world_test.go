// SPDX-License-Identifier: Apache-2.0

// Package flannel_test tests weft's flanneld with flannel's: in one cluster, and as a replacement.
package flannel_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

// limit is the timeout of all waits, for a busy host.
const limit = time.Minute

// The two implementations.
const (
	weft     = "weft"
	flanneld = "flannel"
)

// needFlanneld skips the test if flannel's flanneld is not available.
func needFlanneld(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("WEFT_FLANNEL_DIR")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(home, ".cache/weft/flannel-v0.28.9")
	}
	path := filepath.Join(dir, "flanneld")
	if _, err := os.Stat(path); err != nil {
		nettest.SkipMissing(t, "flannel's flanneld is missing: build it with test/flannel/build.sh, or set WEFT_FLANNEL_DIR")
	}
	if _, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables"); err != nil {
		nettest.Skip(t, "flannel's flanneld requires br_netfilter, which is not loaded")
	}
	return path
}

// hubAddr is the address of etcd and the API server, and the nodes' default gateway.
const hubAddr = "192.168.7.100"

// cluster is nodes on one bridge.
type cluster struct {
	t     *testing.T
	hub   *netns.NS
	nodes map[string]*node
	// args are the arguments of both implementations.
	args []string
	env  func(name string) []string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, hub: nettest.NS(t, "hub"), nodes: map[string]*node{}, env: func(string) []string { return nil }}
	ip(t, c.hub, "link set lo up", "link add br0 type bridge", "link set br0 up", "addr add "+hubAddr+"/24 dev br0",
		"addr add fd07::100/64 dev br0 nodad")
	return c
}

// node is a node with one pod.
type node struct {
	c    *cluster
	name string
	num  int
	ns   *netns.NS
	pod  *netns.NS
	dir  string
	env  flannel.SubnetEnv
	run  *process
}

func ip(t testing.TB, ns *netns.NS, lines ...string) {
	t.Helper()
	for _, l := range lines {
		nettest.Run(t, ns, append([]string{"ip"}, strings.Fields(l)...)...)
	}
}

// node creates node num.
func (c *cluster) node(num int) *node {
	c.t.Helper()
	name := fmt.Sprintf("n%d", num)
	n := &node{
		c: c, name: name, num: num, ns: nettest.NS(c.t, name), pod: nettest.NS(c.t, name+"-pod"), dir: c.t.TempDir(),
	}
	ip(
		c.t, c.hub,
		fmt.Sprintf("link add p%d address 02:00:00:00:ff:%02x type veth peer name eth0 address 02:00:00:00:00:%02x netns %s",
			num, num, num, n.ns.Path()),
		fmt.Sprintf("link set p%d master br0 up", num))
	// its peer may be deleted with its namespace later
	c.t.Cleanup(func() { _, _ = nettest.Try(c.hub, "ip", "link", "del", fmt.Sprintf("p%d", num)) })
	ip(c.t, n.ns, "link set lo up", "link set eth0 up", "addr add "+n.addr()+"/24 dev eth0",
		fmt.Sprintf("addr add fd07::%d/64 dev eth0 nodad", num),
		"route add default via "+hubAddr, "route add default via fd07::100")
	// As set by the kubelet and others; flannel's flanneld does not set them.
	nettest.Run(c.t, n.ns, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	c.nodes[name] = n
	return n
}

func (n *node) addr() string { return fmt.Sprintf("192.168.7.%d", n.num) }

func (n *node) subnetFile() string { return filepath.Join(n.dir, "subnet.env") }

// process is a running daemon.
type process struct {
	kind string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// start starts a daemon and waits until its subnet file exists.
func (n *node) start(kind string, more ...string) {
	n.c.t.Helper()
	n.launch(kind, more...)
	n.awaitSubnet()
}

// awaitSubnet waits for the subnet file.
func (n *node) awaitSubnet() {
	n.c.t.Helper()
	n.c.until(n.name+" has a subnet", func() bool {
		text, err := os.ReadFile(n.subnetFile())
		if err != nil {
			n.mustRun()
			return false
		}
		n.env, err = flannel.ParseSubnetEnv(text)
		return err == nil
	})
}

// launch starts a daemon.
func (n *node) launch(kind string, more ...string) {
	t := n.c.t
	t.Helper()
	argv := []string{filepath.Join(nettest.Programs(t), "weft"), "flanneld"}
	if kind == flanneld {
		argv = []string{needFlanneld(t)}
	}
	argv = append(argv, n.c.args...)
	argv = append(argv, "-subnet-file="+n.subnetFile())
	argv = append(argv, more...)
	p := &process{
		kind: kind, cmd: exec.Command(argv[0], argv[1:]...), log: filepath.Join(n.dir, "log"), done: make(chan struct{}),
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "WIREGUARD_KEY_FILE=" + filepath.Join(n.dir, "wgkey")},
		n.c.env(n.name)...)
	if err := n.ns.Do(p.cmd.Start); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	n.run = p
	t.Cleanup(func() {
		p.stop(syscall.SIGKILL)
		if t.Failed() && n.run == p { // the log is appended to
			b, _ := os.ReadFile(p.log)
			t.Logf("%s, %s:\n%s", n.name, kind, b[max(0, len(b)-6000):])
		}
	})
}

// stop signals a process and waits for it.
func (p *process) stop(signal syscall.Signal) {
	_ = p.cmd.Process.Signal(signal)
	<-p.done
}

// exited reports whether the daemon has exited.
func (n *node) exited() bool {
	select {
	case <-n.run.done:
		return true
	default:
		return false
	}
}

// mustRun fails the test if the daemon has exited.
func (n *node) mustRun() {
	n.c.t.Helper()
	if n.exited() {
		n.c.t.Fatalf("%s: the daemon has exited: %v", n.name, n.run.cmd.ProcessState)
	}
}

// stop stops the daemon as an administrator does. Flannel's flanneld sometimes deadlocks then.
func (n *node) stop() {
	n.c.t.Helper()
	_ = n.run.cmd.Process.Signal(syscall.SIGTERM)
	patience := limit
	if n.run.kind == flanneld {
		patience = 2 * time.Second
	}
	select {
	case <-n.run.done:
	case <-time.After(patience):
		n.run.stop(syscall.SIGKILL)
		if n.run.kind == weft {
			n.c.t.Errorf("%s: weft's daemon does not exit", n.name)
		}
	}
}

// addPod attaches the node's pod, as the CNI plugin would with subnet.env.
func (n *node) addPod() {
	t := n.c.t
	t.Helper()
	ip(
		t, n.ns,
		fmt.Sprintf(
			"link add cni0 mtu %d address 02:00:00:00:01:%02x type veth peer name eth0 mtu %d address 02:00:00:00:02:%02x netns %s",
			n.env.MTU, n.num, n.env.MTU, n.num, n.pod.Path()), "link set cni0 up")
	ip(t, n.pod, "link set lo up", "link set eth0 up")
	for _, p := range []netip.Prefix{n.env.Subnet, n.env.IPv6Subnet} {
		if !p.IsValid() {
			continue
		}
		opts := ""
		if p.Addr().Is6() {
			opts = " nodad"
		}
		ip(t, n.ns, "addr add "+p.String()+" dev cni0"+opts)
		ip(t, n.pod, "addr add "+netip.PrefixFrom(p.Addr().Next(), p.Bits()).String()+" dev eth0"+opts,
			"route add default via "+p.Addr().String())
	}
}

// routes returns the node's routes.
func (n *node) routes() string {
	n.c.t.Helper()
	return nettest.Run(n.c.t, n.ns, "ip", "route")
}

// pods returns the addresses of the node's pod.
func (n *node) pods() []string {
	var out []string
	for _, p := range []netip.Prefix{n.env.Subnet, n.env.IPv6Subnet} {
		if p.IsValid() {
			out = append(out, p.Addr().Next().String())
		}
	}
	return out
}

func (c *cluster) until(what string, ok func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("%s: not after %s", what, limit)
		}
	}
}

// reach pings with the largest packets that a pod can send, in both directions.
func (c *cluster) reach(a, b *node) {
	c.t.Helper()
	for _, way := range [][2]*node{{a, b}, {b, a}} {
		for _, to := range way[1].pods() {
			headers, most := 28, min(a.env.MTU, b.env.MTU)
			if strings.Contains(to, ":") {
				headers = 48
				if most == 1450 { // flannel's value for both families: 20 too large for IPv6 over IPv6
					most = 1430
				}
			}
			size := fmt.Sprint(most - headers)
			c.until(fmt.Sprintf("%s of %s answers the pod of %s", to, way[1].name, way[0].name), func() bool {
				_, err := nettest.Try(way[0].pod, "ping", "-c1", "-W1", "-M", "do", "-s", size, to)
				return err == nil
			})
		}
	}
}
