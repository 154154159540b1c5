// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) {
	if os.Getenv(calicoDir) == "" {
		os.Exit(m.Run()) // the tests are skipped: do not build programs
	}
	os.Exit(nettest.MainWithPrograms(m))
}

// calicoDir is the variable with the directory of Calico's programs, built by build.sh.
const calicoDir = "WEFT_CALICO_DIR"

// limit is the timeout of all waits, for a busy host.
const limit = 2 * time.Minute

// hubAddr and hubAddr6 are the addresses of the API server, which listens at the first one.
const hubAddr, hubAddr6 = "192.168.7.100", "fd07::100"

// apiPort stands for the port of the API server in Calico's environment.
const apiPort = "$API"

type fields = map[string]any

// cluster is an API server and nodes on one switch.
type cluster struct {
	*apitest.Server
	t      *testing.T
	calico string // the directory of Calico's programs
	hub    *netns.NS
	nodes  []*node
	// owners are the pods by address, over all networks.
	owners map[netip.Addr]string
}

func newCluster(t *testing.T, conf map[string]string) *cluster {
	t.Helper()
	c := &cluster{t: t, calico: os.Getenv(calicoDir), owners: map[netip.Addr]string{}}
	if c.calico == "" {
		nettest.SkipMissing(t, calicoDir+" is not set: make takeover builds Calico's programs and runs this test")
	}
	for _, program := range []string{"iptables-save", "iptables-restore", "ipset", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			nettest.SkipMissing(t, program+" is missing, which Calico needs")
		}
	}
	overlayDir(t, "/var/lib")
	c.hub = nettest.NS(t, "hub")
	ip(t, c.hub, "link set lo up", "link add br0 type bridge", "link set br0 up", "addr add "+hubAddr+"/24 dev br0",
		"addr add "+hubAddr6+"/64 dev br0 nodad")
	c.Server = apitest.Start(t, c.hub, netip.MustParseAddr(hubAddr))
	for _, kinds := range []string{
		filepath.Join(c.calico, "crds", "crd.projectcalico.org_*.yaml"), "../../deploy/crds/*.yaml",
	} {
		c.defineKinds(kinds)
	}
	if familiesOf(conf) == ipv6 { // calico-node reads no mode of VXLAN for it from its environment without a pool of IPv4
		c.create(object("IPPool", "default-ipv6-ippool", "", fields{
			"cidr": "fd10:244::/64", "vxlanMode": "Always", "ipipMode": "Never", "natOutgoing": true, "blockSize": 122, "nodeSelector": "all()",
			"allowedUses": []string{"Workload", "Tunnel"},
		}))
	}
	for num := range 2 {
		c.nodes = append(c.nodes, c.node(num+1, conf))
	}
	return c
}

// overlayDir mounts an overlay over a directory in the test's mount namespace: Calico writes files of the node there. A
// further cluster of a test uses the first one's: the kernel does not stack more than two.
func overlayDir(t *testing.T, dir string) {
	t.Helper()
	var mounted, parent syscall.Stat_t
	var fs syscall.Statfs_t
	for _, err := range []error{syscall.Stat(dir, &mounted), syscall.Stat(filepath.Dir(dir), &parent), syscall.Statfs(dir, &fs)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	const overlay = 0x794c7630 // OVERLAYFS_SUPER_MAGIC
	if mounted.Dev != parent.Dev && fs.Type == overlay {
		return
	}
	upper, work := t.TempDir(), t.TempDir()
	if err := syscall.Mount("overlay", dir, "overlay", 0,
		fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", dir, upper, work)); err != nil {
		nettest.Skip(t, "no overlay over "+dir+": "+err.Error())
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

func ip(t testing.TB, ns *netns.NS, lines ...string) {
	t.Helper()
	for _, l := range lines {
		nettest.Run(t, ns, append([]string{"ip"}, strings.Fields(l)...)...)
	}
}

// defineKinds creates the CRDs of some files.
func (c *cluster) defineKinds(glob string) {
	c.t.Helper()
	files, err := filepath.Glob(glob)
	if err != nil || len(files) == 0 {
		c.t.Fatalf("%s: no CRDs: %v", glob, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			c.t.Fatal(err)
		}
		c.DefineKind(text)
	}
}

func (c *cluster) until(what string, ok func() bool) {
	c.t.Helper()
	if !c.tryUntil(ok) {
		c.t.Fatalf("%s: not after %s", what, limit)
	}
}

// tryUntil waits for ok, and reports whether it held before the limit.
func (c *cluster) tryUntil(ok func() bool) bool {
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// families are address families of pods.
type families int

const (
	ipv4 families = iota
	ipv6
	dual
)

// familiesOf returns those of Calico's environment.
func familiesOf(conf map[string]string) families {
	switch {
	case conf["FELIX_IPV6SUPPORT"] != "true":
		return ipv4
	case conf["IP"] == "none":
		return ipv6
	}
	return dual
}

// node is a node with Calico and weft.
type node struct {
	c    *cluster
	name string
	addr string
	// addr6 is the second address.
	addr6 string
	ns    *netns.NS
	dir   string
	env   []string // Calico's
	// families are those of its pods.
	families families
	// felix and agent are the running daemons; nil if not running.
	felix, agent *daemon
}

// node creates a node and its Node object, and starts Calico on it.
func (c *cluster) node(num int, conf map[string]string) *node {
	t := c.t
	t.Helper()
	name := fmt.Sprintf("n%d", num)
	n := &node{
		c: c, name: name, addr: fmt.Sprintf("192.168.7.%d", num), ns: nettest.NS(t, name), dir: t.TempDir(),
		addr6: fmt.Sprintf("fd07::%d", num), families: familiesOf(conf),
	}
	ip(t, c.hub, fmt.Sprintf("link add p%d type veth peer name eth0 netns %s", num, n.ns.Path()),
		fmt.Sprintf("link set p%d master br0 up", num))
	t.Cleanup(func() { _, _ = nettest.Try(c.hub, "ip", "link", "del", fmt.Sprintf("p%d", num)) })
	ip(t, n.ns, "link set lo up", "link set eth0 up", "addr add "+n.addr+"/24 dev eth0", "route add default via "+hubAddr,
		"addr add "+n.addr6+"/64 dev eth0 nodad", "route add default via "+hubAddr6)
	nettest.Run(t, n.ns, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	c.Do(http.MethodPost, "/api/v1/nodes", fields{
		"metadata": fields{"name": name, "labels": fields{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
		"status": fields{
			"addresses": []fields{{"type": "InternalIP", "address": n.addr}, {"type": "InternalIP", "address": n.addr6}},
		},
	})
	n.env = []string{
		"PATH=" + os.Getenv("PATH"), "DATASTORE_TYPE=kubernetes", "KUBECONFIG=" + c.Kubeconfig(c.URL, ""), "NODENAME=" + name,
		"CALICO_K8S_NODE_REF=" + name,
		"CALICO_DISABLE_FILE_LOGGING=true", "CALICO_NETWORKING_BACKEND=vxlan", "CALICO_IPV4POOL_IPIP=Never", "IP=autodetect",
		"CLUSTER_TYPE=k8s", "CALICO_IPV4POOL_CIDR=10.244.0.0/16",
		"FELIX_FELIXHOSTNAME=" + name, "FELIX_DEFAULTENDPOINTTOHOSTACTION=ACCEPT", "FELIX_HEALTHENABLED=true",
		"FELIX_USAGEREPORTINGENABLED=false", "FELIX_LOGSEVERITYSCREEN=Warning", "FELIX_LOGSEVERITYSYS=none",
		"FELIX_LOGFILEPATH=none", "FELIX_ENDPOINTSTATUSPATHPREFIX=none", "FELIX_XDPENABLED=false",
		"FELIX_DebugSkipCTLBCleanup=true", // programs built without cgo have no eBPF
	}
	if n.families == ipv4 {
		n.env = append(n.env, "FELIX_IPV6SUPPORT=false")
	}
	for key, value := range conf {
		n.env = append(n.env, key+"="+strings.ReplaceAll(value, apiPort, c.URL[strings.LastIndex(c.URL, ":")+1:]))
	}
	n.runOnce("-startup")
	n.runOnce("-allocate-tunnel-addrs", "-allocate-tunnel-addrs-run-once")
	n.felix = n.start("felix", n.env, filepath.Join(c.calico, "calico-node"), "-felix")
	c.until("felix is ready", func() bool {
		n.felix.mustRun()
		return n.ready()
	})
	return n
}

// ready reports whether Felix is ready.
func (n *node) ready() bool {
	var answer []byte
	err := n.ns.Do(func() error {
		conn, err := net.DialTimeout("tcp", "localhost:9099", time.Second)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err = fmt.Fprint(conn, "GET /readiness HTTP/1.0\r\n\r\n"); err != nil {
			return err
		}
		answer, err = io.ReadAll(conn)
		return err
	})
	return err == nil && bytes.HasPrefix(answer, []byte("HTTP/1.0 2"))
}

// runOnce runs a command of Calico's that exits, again if it fails: some of its requests have short timeouts.
func (n *node) runOnce(args ...string) {
	n.c.t.Helper()
	var out []byte
	var err error
	if !n.c.tryUntil(func() bool {
		cmd := exec.Command(filepath.Join(n.c.calico, "calico-node"), args...)
		cmd.Env = n.env
		err = n.ns.Do(func() (err error) { out, err = cmd.CombinedOutput(); return err })
		return err == nil
	}) {
		n.c.t.Fatalf("%s: calico-node %v: %v\n%s", n.name, args, err, out)
	}
}

// daemon is a running process.
type daemon struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// start starts a daemon in the node's namespace.
func (n *node) start(name string, env []string, argv ...string) *daemon {
	t := n.c.t
	t.Helper()
	d := &daemon{
		t: t, name: n.name + " " + name, cmd: exec.Command(argv[0], argv[1:]...), log: filepath.Join(n.dir, name+".log"),
		done: make(chan struct{}),
	}
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	d.cmd.Stdout, d.cmd.Stderr, d.cmd.Env = log, log, env
	if err := n.ns.Do(d.cmd.Start); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.done)
		_ = d.cmd.Wait()
	}()
	t.Cleanup(func() {
		d.stop(syscall.SIGKILL)
		if t.Failed() {
			b, _ := os.ReadFile(d.log)
			t.Logf("%s:\n%s", d.name, b[max(0, len(b)-6000):])
		}
	})
	return d
}

// stop signals a process and waits for it.
func (d *daemon) stop(signal syscall.Signal) {
	_ = d.cmd.Process.Signal(signal)
	select {
	case <-d.done:
	case <-time.After(10 * time.Second):
		_ = d.cmd.Process.Kill()
		<-d.done
	}
}

// mustRun fails the test if the daemon has exited.
func (d *daemon) mustRun() {
	d.t.Helper()
	select {
	case <-d.done:
		d.t.Fatalf("%s has exited: %v", d.name, d.cmd.ProcessState)
	default:
	}
}
