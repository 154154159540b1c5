// SPDX-License-Identifier: Apache-2.0

package bgp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/nodebgp"
)

// patience is how long anything may take on a busy host.
const patience = 90 * time.Second

// node is a node with an agent and weft-bgp. Its manifests are its own; each node of a test gets the same.
type node struct {
	t    testing.TB
	name string
	ns   *netns.NS
	dir  string
	// withoutBGP: the agent's configuration does not have weft-bgp.
	withoutBGP bool
	// kubeconfig is that of the API server that is the datastore in the place of manifests, if any.
	kubeconfig string
	// agent and speaker are the running processes.
	agent, speaker *process
}

// process is a running program, with its output.
type process struct {
	cmd  *exec.Cmd
	out  output
	dead chan struct{}
}

type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// start starts a program in a namespace; it is killed at the end of the test.
func start(t testing.TB, ns *netns.NS, argv ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), dead: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := ns.Do(p.cmd.Start); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.dead)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(argv[0]), p.out.String())
		}
	})
	return p
}

// kill ends a process as a crash does.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.dead
}

// newNode creates a node whose eth0 has the address, before its programs run.
func newNode(t testing.TB, name string) *node {
	t.Helper()
	n := &node{t: t, name: name, ns: nettest.NS(t, name), dir: t.TempDir()}
	nettest.Run(t, n.ns, "ip", "link", "set", "lo", "up")
	if err := os.Mkdir(n.path("store"), 0o755); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) path(elem ...string) string { return filepath.Join(append([]string{n.dir}, elem...)...) }

// put writes a manifest.
func (n *node) put(file, text string) {
	n.t.Helper()
	if err := os.WriteFile(n.path("store", file), []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) startAgent(more string) {
	n.t.Helper()
	file := n.path("weft.yaml")
	datastore := "storeDir: " + n.path("store")
	if n.kubeconfig != "" {
		datastore = "kubernetes: {kubeconfig: " + n.kubeconfig + "}"
	}
	text := fmt.Sprintf("node: %s\nsocket: %s\nstateDir: %s\n%s\n", n.name, n.path("agent.sock"), n.path("state"), datastore)
	if !n.withoutBGP {
		text += fmt.Sprintf("bgp:\n  socket: %s\n  secretInterval: 1s\n", n.path("bgp.sock"))
	}
	text += more
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	n.agent = start(n.t, n.ns, nettest.Programs(n.t)+"/weft-agent", "agent", "--config", file)
}

func (n *node) startSpeaker() {
	n.t.Helper()
	n.speaker = start(n.t, n.ns, nettest.Programs(n.t)+"/weft-bgp", "-socket", n.path("bgp.sock"))
}

// status asks the agent.
func (n *node) status() (s nodebgp.Status) {
	out, err := nettest.Try(n.ns, nettest.Programs(n.t)+"/weft", "bgp", "--state-dir", n.path("state"), "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	if err != nil {
		s.Error = err.Error() + out
	}
	return s
}

// route returns the kernel's route to a prefix, empty if there is none.
func (n *node) route(prefix string) string {
	argv := []string{"ip", "route", "show", prefix}
	if strings.Contains(prefix, ":") {
		argv = []string{"ip", "-6", "route", "show", prefix}
	}
	out, _ := nettest.Try(n.ns, argv...)
	return strings.Join(strings.Fields(out), " ")
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool, state func() string) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %s: %s", what, patience, state())
		}
	}
}

// learns waits for a route over a gateway.
func (n *node) learns(prefix, gateway string) {
	n.t.Helper()
	eventually(n.t, n.name+" learns "+prefix, func() bool { return strings.Contains(n.route(prefix), "via "+gateway) },
		func() string { return fmt.Sprintf("%q %+v", n.route(prefix), n.status()) })
}

// forgets waits until there is no route.
func (n *node) forgets(prefix string) {
	n.t.Helper()
	eventually(n.t, n.name+" forgets "+prefix, func() bool { return n.route(prefix) == "" },
		func() string { return fmt.Sprintf("%q %+v", n.route(prefix), n.status()) })
}

// bird is a BIRD in a namespace.
type bird struct {
	t   testing.TB
	ns  *netns.NS
	dir string
	*process
}

// startBird starts BIRD with a configuration.
func startBird(t testing.TB, ns *netns.NS, config string) *bird {
	t.Helper()
	if _, err := exec.LookPath("bird"); err != nil {
		if _, err := os.Stat("/usr/sbin/bird"); err != nil {
			nettest.SkipMissing(t, "bird (Debian's bird2) is not installed: test/deps.sh test")
		}
	}
	b := &bird{t: t, ns: ns, dir: t.TempDir()}
	b.configure(config)
	b.start()
	return b
}

func (b *bird) configure(config string) {
	b.t.Helper()
	if err := os.WriteFile(b.dir+"/bird.conf", []byte("log stderr all;\nprotocol device { scan time 1; }\n"+config), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bird) start() {
	b.t.Helper()
	b.process = start(b.t, b.ns, "/usr/sbin/bird", "-c", b.dir+"/bird.conf", "-s", b.dir+"/bird.ctl", "-f", "-P", b.dir+"/bird.pid")
}

// ask returns the answer of birdc.
func (b *bird) ask(args ...string) string {
	out, _ := nettest.Try(b.ns, append([]string{"/usr/sbin/birdc", "-s", b.dir + "/bird.ctl"}, args...)...)
	return out
}

// hears waits until BIRD's answer about a prefix has a text, or not.
func (b *bird) hears(prefix, text string, has bool) {
	b.t.Helper()
	eventually(b.t, fmt.Sprintf("BIRD's answer about %s has %q: %t", prefix, text, has),
		func() bool { return strings.Contains(b.ask("show", "route", prefix, "all"), text) == has },
		func() string { return b.ask("show", "route", "all") + b.ask("show", "protocols", "all") })
}

// clocks is how far BIRD's answers about one moment may differ: it computes them from two clocks.
const clocks = 100 * time.Millisecond

// since returns the time of day from which BIRD has a route.
func (b *bird) since(prefix string) time.Time {
	b.t.Helper()
	out := b.ask("show", "route", prefix)
	found := regexp.MustCompile(`\[\S+ (\d+:\d+:\d+\.\d+)`).FindStringSubmatch(out)
	if found == nil {
		b.t.Fatalf("BIRD has no route to %s: %s", prefix, out)
	}
	at, err := time.Parse("15:04:05", found[1])
	if err != nil {
		b.t.Fatal(err)
	}
	return at
}

// connect connects two namespaces by a veth pair with addresses at its ends.
func connect(t testing.TB, a *netns.NS, aLink, aAddr string, b *netns.NS, bLink, bAddr string) {
	t.Helper()
	nettest.Run(t, a, "ip", "link", "add", aLink, "type", "veth", "peer", "name", bLink, "netns", b.Path())
	for _, end := range []struct {
		ns         *netns.NS
		link, addr string
	}{{a, aLink, aAddr}, {b, bLink, bAddr}} {
		for _, addr := range strings.Fields(end.addr) {
			argv := []string{"ip", "addr", "add", addr, "dev", end.link}
			if strings.Contains(addr, ":") {
				argv = append(argv, "nodad")
			}
			nettest.Run(t, end.ns, argv...)
		}
		nettest.Run(t, end.ns, "ip", "link", "set", end.link, "up")
	}
}

// nodeManifest is a Node object.
func nodeManifest(name, labels string, podCIDRs, addrs []string) string {
	text := fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata:\n  name: %s\n  labels: {%s}\nspec:\n  podCIDRs: [%s]\nstatus:\n  addresses:\n",
		name, labels, `"`+strings.Join(podCIDRs, `","`)+`"`)
	for _, a := range addrs {
		text += fmt.Sprintf("  - {type: InternalIP, address: %q}\n", a)
	}
	return text
}
