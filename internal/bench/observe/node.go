// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weft-net/weft/internal/bench/subprocess"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/adminapi"
)

// The node's name, its range of addresses, and the address of the agent's metrics in its namespace.
const (
	nodeName    = "bench"
	podCIDR     = "10.244.1.0/24"
	metricsAddr = "127.0.0.1:9119"
	// accountingFile is the setting that counts packets of connections.
	accountingFile = "/proc/sys/net/netfilter/nf_conntrack_acct"
)

// node is the node with its pods.
type node struct {
	cfg        Config
	dir        string
	ns         *netns.NS
	pods       []pod
	accounting string // the setting before any agent
	agent      *exec.Cmd
	log        bytes.Buffer
	level      string
}

// pod is a pod that the agent has attached.
type pod struct {
	ns   *netns.NS
	addr netip.Addr
}

// startTime is how long an agent may take to start, and to do nothing.
const startTime = 60 * time.Second

// newNode creates the node and its pods.
func newNode(ctx context.Context, cfg Config, path string) (n *node, err error) {
	n = &node{cfg: cfg, dir: path, level: levelNone}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if n.ns, err = netns.Anonymous(); err != nil {
		return n, err
	}
	// Addresses and ports are used again before UDP's usual 30 seconds are over.
	const timeouts = "/proc/sys/net/netfilter/nf_conntrack_udp_timeout"
	err = n.ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := errors.Join(netlink.LinkSetUp(lo), os.WriteFile(timeouts, []byte("5"), 0o600)); err != nil {
			return err
		}
		b, err := os.ReadFile(accountingFile)
		n.accounting = strings.TrimSpace(string(b))
		return err
	})
	if err != nil {
		return n, fmt.Errorf("node: %w", err)
	}
	if err := n.fillStore(ctx); err != nil {
		return n, err
	}
	if err := n.setLevel(ctx, flow.LevelOff); err != nil {
		return n, err
	}
	for _, name := range podNames() {
		if err := n.attach(ctx, name); err != nil {
			return n, err
		}
	}
	return n, nil
}

func podNames() []string { return []string{"a", "b"} }

// fillStore writes the datastore: the node, both pods and a policy that allows their connections.
func (n *node) fillStore(ctx context.Context) error {
	if err := os.Mkdir(n.path("store"), 0o700); err != nil {
		return err
	}
	s, err := dir.Open(n.path("store"))
	if err != nil {
		return err
	}
	self, err := store.NodeObject(model.Node{
		Name: nodeName, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix(podCIDR)},
	})
	if err != nil {
		return err
	}
	all := []store.Object{self}
	texts := []string{
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"default"}}`,
		`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"all","namespace":"default"},"spec":{` +
			`"podSelector":{},"policyTypes":["Ingress","Egress"],"ingress":[{"from":[{"podSelector":{}}]}],` +
			`"egress":[{"to":[{"podSelector":{}}]}]}}`,
	}
	for _, name := range podNames() {
		texts = append(texts, fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"default","uid":%q},`+
			`"spec":{"nodeName":%q},"status":{"phase":"Running"}}`, name, "uid-"+name, nodeName))
	}
	for _, text := range texts {
		o, err := store.NewObject([]byte(text))
		if err != nil {
			return err
		}
		all = append(all, o)
	}
	for _, o := range all {
		if _, err := s.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) path(parts ...string) string {
	return filepath.Join(append([]string{n.dir}, parts...)...)
}

// setLevel replaces the agent by one of the level, and waits until it has nothing to do.
func (n *node) setLevel(ctx context.Context, level string) error {
	n.stop()
	n.level = level
	if level == levelNone {
		return nil
	}
	config := fmt.Sprintf("install: {confDir: %q}\nnetwork: {mode: cluster, encapsulation: host-gw, masquerade: true, "+
		"clusterCIDRs: [10.244.0.0/16]}\nobserve: {level: %q}\nmetrics: {address: %q}\n", n.path("net.d"), level, metricsAddr)
	if err := os.WriteFile(n.path("weft.yaml"), []byte(config), 0o600); err != nil {
		return err
	}
	n.log.Reset()
	n.agent = exec.Command(n.cfg.Agent, "agent", "--node", nodeName, "--socket", n.path("agent.sock"), "--state-dir", n.path("state"),
		"--store-dir", n.path("store"), "--config", n.path("weft.yaml"), "--address-dir", n.path("addresses"))
	n.agent.Stdout, n.agent.Stderr = &n.log, &n.log
	n.agent.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := n.ns.Do(n.agent.Start); err != nil {
		n.agent = nil
		return fmt.Errorf("agent: %w", err)
	}
	return n.await(ctx, level)
}

// await waits until the agent observes and has nothing to do.
func (n *node) await(ctx context.Context, level string) error {
	const pause, quiet, pauses = 50 * time.Millisecond, 2 * time.Millisecond, 20 // a second without work
	var last time.Duration
	calm := 0
	for end := time.Now().Add(startTime); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		c, err := net.Dial("unix", adminapi.Path(n.path("agent.sock")))
		if err != nil {
			continue
		}
		_ = c.Close()
		has, err := n.listed()
		if err != nil {
			return err
		}
		cpu, err := n.cpuTime()
		if err != nil {
			return fmt.Errorf("agent: %w: %s", err, n.output())
		}
		used := cpu - last
		last = cpu
		if calm++; used > quiet {
			calm = 0
		}
		if calm >= pauses && has.ready(level) {
			return nil
		}
	}
	return fmt.Errorf("agent of level %s is not ready after %s: %s", level, startTime, n.output())
}

// output stops the agent and returns what it has logged.
func (n *node) output() string {
	n.stop()
	return n.log.String()
}

// stop ends the agent.
func (n *node) stop() {
	if n.agent == nil {
		return
	}
	_ = n.agent.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(10*time.Second, func() { _ = n.agent.Process.Kill() })
	_ = n.agent.Wait()
	kill.Stop()
	n.agent = nil
}

// close ends the agent and removes the namespaces.
func (n *node) close() {
	n.stop()
	for _, p := range n.pods {
		_ = p.ns.Close()
	}
	if n.ns != nil {
		_ = n.ns.Close()
	}
}

// attach calls weft's plugin for a pod.
func (n *node) attach(ctx context.Context, name string) error {
	var list struct {
		CNIVersion string                       `json:"cniVersion"`
		Name       string                       `json:"name"`
		Plugins    []map[string]json.RawMessage `json:"plugins"`
	}
	b, err := os.ReadFile(n.path("net.d", "00-weft.conflist"))
	for end := time.Now().Add(startTime); err != nil; b, err = os.ReadFile(n.path("net.d", "00-weft.conflist")) {
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("network of the agent: %w: %s", err, n.output())
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := json.Unmarshal(b, &list); err != nil || len(list.Plugins) != 1 {
		return fmt.Errorf("network of the agent: %w: %s", err, b)
	}
	conf := list.Plugins[0]
	conf["cniVersion"], conf["name"] = json.RawMessage(strconv.Quote(list.CNIVersion)), json.RawMessage(strconv.Quote(list.Name))
	stdin, err := json.Marshal(conf)
	if err != nil {
		return err
	}
	ns, err := netns.Anonymous()
	if err != nil {
		return err
	}
	n.pods = append(n.pods, pod{ns: ns})
	for end := time.Now().Add(startTime); ; time.Sleep(50 * time.Millisecond) {
		out, err := n.add(name, ns, stdin)
		if err == nil {
			n.pods[len(n.pods)-1].addr, err = address(out)
			return err
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("pod %s: %w: %s: %s", name, err, out, n.output())
		}
	}
}

// add makes one call.
func (n *node) add(name string, ns *netns.NS, stdin []byte) ([]byte, error) {
	cmd := exec.Command(filepath.Join(n.cfg.BinDir, "weft-cni"))
	cmd.Env = []string{
		"CNI_COMMAND=ADD", "CNI_CONTAINERID=id-" + name, "CNI_IFNAME=eth0", "CNI_PATH=" + n.cfg.BinDir,
		fmt.Sprintf("CNI_NETNS=/proc/%d/fd/%d", os.Getpid(), ns.Fd()),
		"CNI_ARGS=K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + name + ";K8S_POD_UID=uid-" + name + ";K8S_POD_INFRA_CONTAINER_ID=id-" + name,
	}
	cmd.Stdin = bytes.NewReader(stdin)
	return cmd.CombinedOutput()
}

// address returns the address of a result.
func address(out []byte) (netip.Addr, error) {
	var result struct {
		IPs []struct {
			Address netip.Prefix `json:"address"`
		} `json:"ips"`
	}
	if err := json.Unmarshal(out, &result); err != nil || len(result.IPs) == 0 {
		return netip.Addr{}, fmt.Errorf("no address in %s", out)
	}
	return result.IPs[0].Address.Addr(), nil
}

// listing is what a node has for the observation.
type listing struct {
	Sockets, Programs int
	Accounting        string
}

func (l listing) String() string {
	return fmt.Sprintf("%d sockets of conntrack, %d eBPF programs, nf_conntrack_acct %s", l.Sockets, l.Programs, l.Accounting)
}

// ready reports whether it is what the level needs: for flows the sockets of connections, or their programs.
func (l listing) ready(level string) bool {
	const sockets, programs = 2, 4
	observes := l.Sockets == sockets || l.Programs >= programs
	return observes == (level == flow.LevelFlows)
}

// listed lists sockets that receive the namespace's conntrack events, and the agent's eBPF descriptors.
func (n *node) listed() (l listing, err error) {
	err = n.ns.Do(func() error {
		f, err := os.Open("/proc/thread-self/net/netlink")
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		const netfilter, newAndEnd = "12", 0b101
		for lines := bufio.NewScanner(f); lines.Scan(); {
			words := strings.Fields(lines.Text())
			if len(words) < 4 || words[1] != netfilter || words[2] == "0" {
				continue
			}
			if groups, err := strconv.ParseUint(words[3], 16, 32); err == nil && groups&newAndEnd != 0 {
				l.Sockets++
			}
		}
		b, err := os.ReadFile(accountingFile)
		l.Accounting = strings.TrimSpace(string(b))
		return err
	})
	if err != nil || n.agent == nil {
		return l, err
	}
	fds := fmt.Sprintf("/proc/%d/fd", n.agent.Process.Pid)
	all, err := os.ReadDir(fds)
	if err != nil {
		return l, fmt.Errorf("agent: %w: %s", err, n.output())
	}
	for _, fd := range all {
		if to, err := os.Readlink(filepath.Join(fds, fd.Name())); err == nil && strings.Contains(to, "bpf-prog") {
			l.Programs++
		}
	}
	return l, nil
}

// cpuTime returns the CPU time that the agent has used.
func (n *node) cpuTime() (time.Duration, error) {
	return subprocess.CPUTime(n.agent.Process.Pid)
}

// rss returns the agent's resident memory, in MiB.
func (n *node) rss() (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.agent.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		var kb float64
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kb); err == nil {
			return kb / 1024, nil
		}
	}
	return 0, errors.New("memory of the agent: VmRSS is missing")
}

// lost returns how many flows the agent has lost, by its metrics.
func (n *node) lost() (sum uint64, err error) {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
			err = n.ns.Do(func() error {
				c, err = new(net.Dialer).DialContext(ctx, network, addr)
				return err
			})
			return c, err
		},
	}}
	answer, err := client.Get("http://" + metricsAddr + "/metrics")
	if err != nil {
		return 0, fmt.Errorf("metrics of the agent: %w", err)
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok && strings.HasPrefix(name, "weft_observe_lost_total") {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, fmt.Errorf("metrics of the agent: %s: %w", name, err)
			}
			sum += uint64(v)
		}
	}
	return sum, lines.Err()
}
