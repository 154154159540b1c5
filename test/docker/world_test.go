// SPDX-License-Identifier: Apache-2.0

package docker_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/docker/agentapi"
	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/adminapi"
)

func TestMain(m *testing.M) {
	if server := os.Getenv(serverEnv); server != "" {
		os.Exit(sendFirst(server, os.Getenv(nameEnv)))
	}
	os.Exit(nettest.MainWithPrograms(m))
}

// patience is how long anything may take on a busy host.
const patience = 2 * time.Minute

// cluster is a datastore of files with nodes on one network.
type cluster struct {
	t     testing.TB
	dir   string
	store *dir.Store
	// kube is the API server of a cluster with one, which has no store.
	kube  *apitest.Server
	nodes []*host
}

// host is a node with its agent, driver and dockerd.
type host struct {
	t             testing.TB
	dir           string
	ns            *netns.NS
	agent, driver *process
	dockerd       *process
	containerd    *process
	// store are the agent's flags that name the datastore.
	store []string
	name  string
	// pools6 are the pools of IPv6 addresses, for the agent's configuration.
	pools6 string
	// steps is the file of a driver with failpoints; empty: it has none.
	steps string
	// apiSocket is where the driver looks for dockerd; empty: where it is.
	apiSocket string
}

// process is a program that a test starts, kills and starts again.
type process struct {
	cmd  *exec.Cmd
	done chan error
	log  string
}

const image = "weft-test"

// dockerdEnv is the directory of another dockerd and its docker-proxy than Debian's: test/docker/build.sh builds one.
const dockerdEnv = "WEFT_DOCKERD_DIR"

// withIPv6 is an option of newCluster: nodes have IPv6 addresses, and the cluster a pool of such.
const withIPv6 = "ipv6"

// withKube is an option of newCluster: the datastore is an API server.
const withKube = "kube"

// withCompose is an option of newCluster: the test runs docker-compose.
const withCompose = "compose"

// newCluster makes a cluster of n nodes.
func newCluster(t testing.TB, n int, options ...string) *cluster {
	t.Helper()
	six := slices.Contains(options, withIPv6)
	nettest.EndToEnd(t)
	programs := []string{"dockerd", "docker", "containerd", "runc", "busybox"}
	if slices.Contains(options, withCompose) {
		programs = append(programs, "docker-compose")
	}
	if dir := os.Getenv(dockerdEnv); dir != "" {
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			nettest.SkipMissing(t, program+" is missing: apt-get install docker.io docker-compose busybox-static")
		}
	}
	if os.Geteuid() != 0 {
		nettest.SkipMissing(t, "dockerd needs root")
	}
	c := &cluster{t: t, dir: t.TempDir()}
	wire := nettest.NS(t, "wire")
	nettest.IP(t, wire, "link add br0 up type bridge")
	flags := []string{"--store-dir", c.dir}
	if slices.Contains(options, withKube) {
		flags = c.startKube(wire)
	} else {
		var err error
		if c.store, err = dir.Open(c.dir); err != nil {
			t.Fatal(err)
		}
	}
	reapOrphans(t)
	for i := range n {
		h := &host{t: t, dir: shortDir(t), ns: nettest.NS(t, "node"), store: flags, name: fmt.Sprintf("n%d", i+1)}
		v4 := fmt.Sprintf("192.168.77.%d", i+1)
		nettest.IP(t, h.ns, "link set lo up")
		nettest.IP(t, wire, fmt.Sprintf("link add port%d master br0 up type veth peer name eth0 netns %s", i, h.ns.Path()))
		nettest.IP(t, h.ns, "addr add "+v4+"/24 dev eth0")
		nettest.IP(t, h.ns, "link set eth0 up")
		addrs := []netip.Addr{netip.MustParseAddr(v4)}
		if six {
			v6 := fmt.Sprintf("fd18::%d", i+1)
			nettest.IP(t, h.ns, "addr add "+v6+"/64 dev eth0 nodad")
			addrs, h.pools6 = append(addrs, netip.MustParseAddr(v6)), ", {name: six, cidr: 'fd77::/112', blockSize: 122}, "+
				"{name: more6, cidr: 'fd78::/112', blockSize: 122}"
		}
		c.addNode(model.Node{Name: h.name, Addrs: addrs})
		c.nodes = append(c.nodes, h)
		h.startAgent()
		h.startDriver()
		h.startContainerd()
		h.startDockerd()
		h.docker("import", imageFile(t), image)
	}
	return c
}

// startKube starts an API server on the nodes' network, with weft's kinds, and returns the agents' flags for it.
func (c *cluster) startKube(wire *netns.NS) []string {
	c.t.Helper()
	const addr = "192.168.77.250"
	nettest.IP(c.t, wire, "addr add "+addr+"/24 dev br0")
	c.kube = apitest.Start(c.t, wire, netip.MustParseAddr(addr))
	files, _ := filepath.Glob("../../deploy/crds/weft.dev_*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			c.t.Fatal(err)
		}
		c.kube.DefineKind(text)
	}
	return []string{"--kubeconfig", c.kube.Kubeconfig(c.kube.URL, "")}
}

// addNode creates a Node object.
func (c *cluster) addNode(n model.Node) {
	c.t.Helper()
	o, err := store.NodeObject(n)
	switch {
	case err != nil:
	case c.kube != nil:
		c.kube.Do(http.MethodPost, "/api/v1/nodes", string(o.Raw))
	default:
		_, err = c.store.Create(c.t.Context(), o)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// reapOrphans reaps, until the test ends, the processes that a killed dockerd has left: the test's process is the init of
// its namespace, and dockerd takes a containerd that is a zombie for one that runs.
func reapOrphans(t testing.TB) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			stats, _ := filepath.Glob("/proc/[0-9]*/stat")
			for _, path := range stats {
				text, _ := os.ReadFile(path)
				var pid, parent int
				var name, state string
				if _, err := fmt.Sscan(string(text), &pid, &name, &state, &parent); err == nil && state == "Z" &&
					parent == os.Getpid() && strings.HasPrefix(name, "(containerd") {
					_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
}

// shortDir is a directory whose path is short enough for sockets.
func shortDir(t testing.TB) string {
	t.Helper()
	d, err := os.MkdirTemp("", "wd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(d) })
	return d
}

// imageFile returns a root file system with busybox.
func imageFile(t testing.TB) string {
	t.Helper()
	path, _ := exec.LookPath("busybox")
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, content []byte) {
		h.Mode, h.Size = 0o755, int64(len(content))
		if err := errors.Join(w.WriteHeader(&h)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	add(tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg}, program)
	for _, name := range []string{"sh", "ip", "ping", "nc", "sleep", "httpd", "wget", "cat", "nslookup", "true"} {
		add(tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
	}
	add(tar.Header{Name: "tmp/", Typeflag: tar.TypeDir}, nil)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (h *host) path(elem ...string) string { return filepath.Join(append([]string{h.dir}, elem...)...) }

// start starts a program in the node's namespace.
func (h *host) start(name string, argv ...string) *process {
	h.t.Helper()
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan error, 1), log: h.path(name + ".log")}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := h.ns.Do(p.cmd.Start); err != nil {
		h.t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	h.t.Cleanup(func() {
		p.end(syscall.SIGTERM)
		if h.t.Failed() {
			h.t.Logf("%s on %s:\n%s", name, h.name, tail(p.log))
		}
	})
	return p
}

func tail(path string) string {
	b, _ := os.ReadFile(path)
	return string(b[max(len(b)-8000, 0):])
}

// end ends a process, by force if it does not end by itself.
func (p *process) end(sig syscall.Signal) {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(sig)
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
	}
	p.cmd = nil
}

func (h *host) startAgent() {
	h.t.Helper()
	conf := fmt.Sprintf("install: {confDir: %q}\nnetwork: {mode: cluster, addresses: pools, "+
		"pools: [{name: green, cidr: 10.77.0.0/20, blockSize: 28}, {name: blue, cidr: 10.78.0.0/20, "+
		"blockSize: 28}%s]}\n", h.path("net.d"), h.pools6)
	if err := os.WriteFile(h.path("weft.yaml"), []byte(conf), 0o600); err != nil {
		h.t.Fatal(err)
	}
	h.agent = h.start("agent", append([]string{
		filepath.Join(nettest.Programs(h.t), "weft-agent"), "agent", "--node", h.name, "--socket", h.socket(),
		"--state-dir", h.path("state"), "--config", h.path("weft.yaml"), "--log-level", "info",
	}, h.store...)...)
	h.until("the agent writes the network's configuration", func() error {
		files, _ := filepath.Glob(h.path("net.d", "*"))
		if len(files) == 0 {
			return errors.New(tail(h.agent.log))
		}
		_, err := h.attachments() // a killed agent leaves its files and its socket
		return err
	})
}

func (h *host) socket() string { return h.path("run", "agent.sock") }

func (h *host) startDriver() {
	h.t.Helper()
	program := filepath.Join(nettest.Programs(h.t), "weft-docker")
	if h.steps != "" {
		program = h.path("weft-docker")
	}
	h.driver = h.start("driver", "env", failpoint.FileEnv+"="+h.steps, program, "--socket",
		h.path("plugins", "weft.sock"), "--docker-host", "unix://"+cmp.Or(h.apiSocket, h.path("docker.sock")), "--conf-dir", h.path("net.d"),
		"--state-dir", h.path("docker-state"), "--run-dir", h.path("docker-run"), "--log-level", "debug")
	h.until("the driver answers", func() error { return listens(h.path("plugins", "weft.sock")) })
}

// startContainerd starts the node's containerd, with a /run and a resolv.conf of its own, in which dockerd runs, too. It is
// not dockerd's child, which would end with it. The configuration of dockerd spares what Debian's runc does not know. The
// nameservers are of both families: dockerd chooses no subnet with one of them.
func (h *host) startContainerd() {
	h.t.Helper()
	const script = `set -e
mount -t tmpfs none /run
mkdir -p /run/docker/plugins
mount --bind "$1/plugins" /run/docker/plugins
if [ -f /etc/resolv.conf ]; then
  printf 'nameserver 192.168.77.53\nnameserver fd18::53\n' >"$1/resolv.conf"
  mount --bind "$1/resolv.conf" /etc/resolv.conf
fi
echo '{"features": {"time-namespaces": false}}' >"$1/dockerd.json"
printf 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n' >"$1/containerd.toml"
exec containerd --log-level warn --config "$1/containerd.toml" --root "$1/containerd" --state "$1/containerd-state" \
  --address "$1/containerd.sock"`
	h.containerd = h.start("containerd", "unshare", "-m", "bash", "-c", script, "containerd", h.dir)
	h.until("containerd answers", func() error { return listens(h.path("containerd.sock")) })
}

// listens reports whether a process listens at a socket: one that was killed leaves the file.
func listens(socket string) error {
	c, err := net.Dial("unix", socket)
	if err == nil {
		err = c.Close()
	}
	return err
}

// startDockerd starts dockerd.
func (h *host) startDockerd(flags ...string) {
	h.t.Helper()
	again := h.dockerd != nil
	_ = os.Remove(h.path("docker.pid"))
	h.dockerd = h.start("dockerd", append([]string{
		"nsenter", "-m", "-t", strconv.Itoa(h.containerd.cmd.Process.Pid),
		"env", "DOCKER_MIN_API_VERSION=1.24", // for Debian's client and docker-compose; unknown to their dockerd
		"dockerd", "--log-level", "warn",
		"--storage-driver", "vfs", "--iptables=false", "--ip-masq=false", "--bridge=none", "--data-root", h.path("data"),
		"--exec-root", h.path("exec"), "--pidfile", h.path("docker.pid"), "--host", "unix://" + h.path("docker.sock"),
		"--config-file", h.path("dockerd.json"), "--containerd", h.path("containerd.sock"),
	}, flags...)...)
	h.until("dockerd answers", func() error {
		select {
		case err := <-h.dockerd.done:
			h.dockerd.done <- err
			if again {
				h.t.Fatalf("dockerd does not start again: %v", err)
			}
			nettest.SkipMissing(h.t, fmt.Sprintf("dockerd does not run here: %v: %s", err, tail(h.dockerd.log)))
		default:
		}
		_, err := h.try("version")
		return err
	})
}

// try runs a docker command.
func (h *host) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := "/usr/bin/docker" // Debian's, of dockerd's version, where there is another one before it
	if _, err := os.Stat(client); err != nil {
		client = "docker"
	}
	cmd := exec.CommandContext(ctx, client, append([]string{"--host", "unix://" + h.path("docker.sock")}, args...)...)
	cmd.Env = append(os.Environ(), "DOCKER_CONFIG="+h.path("config"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("docker %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}

func (h *host) docker(args ...string) string {
	h.t.Helper()
	out, err := h.try(args...)
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

// refused runs a docker command that must fail with each of the texts.
func (h *host) refused(args []string, texts ...string) {
	h.t.Helper()
	_, err := h.try(args...)
	if err == nil {
		h.t.Errorf("docker %s is not refused", strings.Join(args, " "))
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			h.t.Errorf("the error does not say %q: %v", text, err)
		}
	}
}

// until waits for a condition.
func (h *host) until(what string, is func() error) {
	h.t.Helper()
	var err error
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(50 * time.Millisecond) {
		if err = is(); err == nil {
			return
		}
	}
	h.t.Fatalf("%s: not within %s: %v", what, patience, err)
}

// addr returns a container's address on a network.
func (h *host) addr(container, network string) string {
	h.t.Helper()
	return h.docker("inspect", "-f", fmt.Sprintf("{{(index .NetworkSettings.Networks %q).IPAddress}}", network), container)
}

// addr6 returns a container's IPv6 address on a network.
func (h *host) addr6(container, network string) string {
	h.t.Helper()
	return h.docker("inspect", "-f", fmt.Sprintf("{{(index .NetworkSettings.Networks %q).GlobalIPv6Address}}", network), container)
}

// reaches waits until a container reaches an address.
func (h *host) reaches(container, addr string) {
	h.t.Helper()
	h.until(container+" reaches "+addr, func() error {
		_, err := h.try("exec", container, "ping", "-c1", "-W1", addr)
		return err
	})
}

// left returns what the node's namespace has besides its own, and the attachments that the agent has.
func (h *host) left() string {
	links, _ := nettest.Try(h.ns, "ip", "-o", "link")
	var out []string
	for line := range strings.Lines(links) {
		if strings.Contains(line, ": cali") || strings.Contains(line, ": wd") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	routes, _ := nettest.Try(h.ns, "ip", "route")
	routes6, _ := nettest.Try(h.ns, "ip", "-6", "route")
	routes += "\n" + routes6
	for line := range strings.Lines(routes) {
		if strings.Contains(line, "dev cali") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	ports, _ := nettest.Try(h.ns, "nft", "list", "table", "inet", "weft_hostports")
	for line := range strings.Lines(ports) {
		if strings.Contains(line, "comment") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	all, err := h.attachments()
	if err != nil {
		out = append(out, err.Error())
	}
	for _, a := range all {
		out = append(out, fmt.Sprintf("attachment %+v", a))
	}
	for _, kind := range []string{"docker-state/endpoints", "docker-run/netns"} {
		files, _ := filepath.Glob(h.path(kind, "*"))
		out = append(out, files...)
	}
	return strings.Join(out, "\n")
}

// attachments returns those of containers that the agent has.
func (h *host) attachments() ([]agentapi.Attachment, error) {
	var all []agentapi.Attachment
	err := adminapi.Request{
		Socket: adminapi.Path(h.socket()), Method: http.MethodGet, Path: agentapi.RouteList,
	}.Do(h.t.Context(), &all)
	return all, err
}

// clean waits until nothing is left of containers.
func (h *host) clean() {
	h.t.Helper()
	h.until("nothing is left on "+h.name, func() error {
		if left := h.left(); left != "" {
			return errors.New(left)
		}
		return nil
	})
}
