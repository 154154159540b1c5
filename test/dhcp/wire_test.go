// SPDX-License-Identifier: Apache-2.0

package dhcp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

// node is a node with a bridge and a DHCP server. Everything runs in a namespace of the test.
type node struct {
	t      *testing.T
	dir    string
	ns     *netns.NS
	leases string // dnsmasq's file
	log    logBuffer
	n      int
}

// logBuffer is a bytes.Buffer for concurrent use.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

const bridged = `"bridge":"dbr0"`

func newNode(t *testing.T) *node {
	t.Helper()
	if _, err := exec.LookPath("dnsmasq"); err != nil {
		nettest.SkipMissing(t, "dnsmasq is missing: apt-get install dnsmasq-base")
	}
	n := &node{t: t, dir: t.TempDir(), ns: nettest.NS(t, "node")}
	n.leases = filepath.Join(n.dir, "dnsmasq.leases")
	for _, cmd := range []string{
		"ip link set lo up", "ip link add dbr0 address 02:00:00:00:00:01 type bridge", "ip addr add 10.9.0.1/24 dev dbr0",
		"ip addr add fd00:9::1/64 dev dbr0 nodad", "ip link set dbr0 up",
	} {
		nettest.Run(t, n.ns, strings.Fields(cmd)...)
	}
	t.Cleanup(func() {
		if t.Failed() {
			log := n.log.String()
			t.Logf("log:\n%s", log[max(0, len(log)-6000):])
		}
	})
	n.start("dnsmasq", "started", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--interface=dbr0",
		"--bind-interfaces",
		"--no-ping", "--dhcp-leasefile="+n.leases, "--pid-file=", "--user=root", "--log-facility=-",
		"--dhcp-range=10.9.0.50,10.9.0.99,255.255.255.0,2m", "--dhcp-range=fd00:9::50,fd00:9::99,64,2m",
		"--dhcp-option=option:T1,3", "--dhcp-option=option:T2,60", "--dhcp-option=option:dns-server,10.9.0.53")
	return n
}

// process is a program that runs on the node until the test ends.
type process struct {
	n    *node
	cmd  *exec.Cmd
	done chan error
}

// start starts a program and waits until it prints a text.
func (n *node) start(program, text string, args ...string) *process {
	n.t.Helper()
	return n.run(exec.Command(program, args...), text)
}

// run starts a command; with an empty text it does not wait.
func (n *node) run(cmd *exec.Cmd, text string) *process {
	n.t.Helper()
	before := strings.Count(n.log.String(), text)
	p := &process{n: n, cmd: cmd, done: make(chan error, 1)}
	cmd.Stdout, cmd.Stderr = &n.log, &n.log
	if err := n.ns.Do(cmd.Start); err != nil {
		n.t.Fatal(err)
	}
	go func() { p.done <- cmd.Wait() }()
	n.t.Cleanup(p.kill)
	if text != "" {
		n.until(cmd.Path+" runs", func() bool { return strings.Count(n.log.String(), text) > before })
	}
	return p
}

func (p *process) kill() { p.stop(syscall.SIGKILL) }

func (p *process) stop(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig)
	select {
	case err := <-p.done:
		p.done <- err // for further calls
	case <-time.After(time.Minute):
		p.n.t.Errorf("%s does not exit", p.cmd.Path)
	}
}

func (n *node) until(what string, ok func() bool) {
	n.t.Helper()
	for range 6000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	n.t.Fatalf("%s: not after a minute", what)
}

// leased returns the addresses that the server has leased.
func (n *node) leased() string {
	b, _ := os.ReadFile(n.leases)
	var out []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 2 && f[0] != "duid" {
			out = append(out, f[2])
		}
	}
	return strings.Join(out, " ")
}

func (n *node) expectNoLeases(what string) {
	n.t.Helper()
	n.until(what+": all leases are released", func() bool { return n.leased() == "" })
}

func (n *node) path(elem string) string { return filepath.Join(n.dir, elem) }

func (n *node) socket() string { return n.path("dhcp.sock") }

// daemon starts a daemon: weft's, weft's by the name of the plugin, or the reference's.
func (n *node) daemon(impl string, flags ...string) *process {
	n.t.Helper()
	_ = os.Remove(n.socket()) // the reference daemon does not replace a stale socket
	args := []string{"daemon", "-socketpath", n.socket(), "-timeout", "3s", "-resendmax", "1s", "-resendtimeout", "6s"}
	args = append(args, flags...)
	switch impl {
	case "weft":
		return n.start(filepath.Join(nettest.Programs(n.t), "weft"), "serves leases",
			append(append([]string{"dhcp"}, args...), "-statedir", n.path("state"))...)
	case "weft-plugin":
		return n.start(filepath.Join(nettest.Programs(n.t), "cni", "dhcp"), "serves leases",
			append(args, "-statedir", n.path("state"))...)
	}
	p := n.start(filepath.Join(referenceDir(n.t), "dhcp"), "", args...)
	n.until("the reference daemon listens", func() bool { _, err := os.Stat(n.socket()); return err == nil })
	return p
}

// referenceDir returns the directory of the reference plugins.
func referenceDir(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("WEFT_PEER_BIN_DIR")
	if bin == "" {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR is not set: the reference plugin dhcp is not tested")
	}
	if _, err := os.Stat(filepath.Join(bin, "dhcp")); err != nil {
		nettest.SkipMissing(t, "no reference plugin dhcp in WEFT_PEER_BIN_DIR")
	}
	return bin
}

// pod creates a namespace; with link it has an interface on the bridge, as a main plugin creates it before IPAM.
func (n *node) pod(link bool) *netns.NS {
	n.t.Helper()
	n.n++
	ns := nettest.NS(n.t, fmt.Sprintf("pod%d", n.n))
	if link {
		host := fmt.Sprintf("dveth%d", n.n)
		nettest.Run(n.t, n.ns, "ip", "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", ns.Path())
		nettest.Run(n.t, n.ns, "ip", "link", "set", host, "master", "dbr0", "up")
	}
	return ns
}

// conf returns the configuration of one plugin with dhcp.
func (n *node) conf(version, typ, keys string) string {
	if keys != "" {
		keys += ","
	}
	return fmt.Sprintf(`{"cniVersion":%q,"name":"net","type":%q,%s"ipam":{"type":"dhcp","daemonSocketPath":%q}}`, version,
		typ, keys, n.socket())
}

// call executes a plugin in a CNI binary directory.
func (n *node) call(bin, typ, verb, conf, id string, ns *netns.NS) (string, error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, typ))
	var stdout bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(conf), &stdout, &n.log
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_PATH="+bin, "WEFT_JOURNAL_DIR="+n.path("journal"))
	if verb != "STATUS" && verb != "GC" {
		cmd.Env = append(cmd.Env, "CNI_CONTAINERID="+id, "CNI_IFNAME=eth0")
	}
	if ns != nil {
		cmd.Env = append(cmd.Env, "CNI_NETNS="+ns.Path())
	}
	err := n.ns.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return stdout.String(), errors.Join(err, errors.New(stdout.String()))
	}
	return stdout.String(), nil
}

func (n *node) mustCall(bin, typ, verb, conf, id string, ns *netns.NS) string {
	n.t.Helper()
	out, err := n.call(bin, typ, verb, conf, id, ns)
	if err != nil {
		n.t.Fatalf("%s %s: %v", typ, verb, err)
	}
	return out
}

func withPrev(conf, result string) string {
	return strings.Replace(conf, "{", `{"prevResult":`+result+`,`, 1)
}
