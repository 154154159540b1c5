// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// world is a node with its agent, and libcni in the runtime's place.
type world struct {
	t    *testing.T
	dir  string
	node *netns.NS
	cni  *libcni.CNIConfig
	// agent is the running agent, nil when there is none.
	agent *exec.Cmd
	done  chan error // the agent's end
	args  []string   // further flags
	env   []string   // further variables
	// frozen reports that the test has stopped the agent, which does not answer then.
	frozen bool
}

// patientExec repeats a call that a running agent has not answered in time, as runtimes do: on a busy host it may not even
// get the processor for the short time after which weft-cni takes it for away.
type patientExec struct {
	invoke.Exec
	w *world
}

// patient returns a patientExec. Without one, libcni makes an executor at the first call, without a lock.
func (w *world) patient() *patientExec {
	return &patientExec{Exec: &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}}, w: w}
}

func (e *patientExec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		out, err := e.Exec.ExecPlugin(ctx, path, stdin, environ)
		if err == nil || e.w.agent == nil || e.w.frozen || code(err) != 11 ||
			!strings.Contains(err.Error(), "no answer in time; is `weft agent` running") || time.Now().After(end) {
			return out, err
		}
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), node: nettest.NS(t, "node")}
	nettest.Run(t, w.node, "ip", "link", "set", "lo", "up")
	if err := os.MkdirAll(w.path("marks"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.cni = libcni.NewCNIConfigWithCacheDir([]string{os.Getenv(binVar)}, w.path("cache"), w.patient())
	t.Cleanup(func() { _ = w.end(syscall.SIGKILL) })
	return w
}

func (w *world) path(elem ...string) string {
	return filepath.Join(append([]string{w.dir}, elem...)...)
}

func (w *world) socket() string { return w.path("run", "agent.sock") }

// start starts the agent and waits until it answers.
func (w *world) start() {
	w.t.Helper()
	cmd := exec.Command(filepath.Join(os.Getenv(binVar), "weft-agent"), append([]string{
		"agent", "--node", "n1", "--socket", w.socket(), "--state-dir", w.path("state"), "--log-level", "warn",
	}, w.args...)...)
	cmd.Env = append(append(os.Environ(), "WEFT_STEP_FILE="+w.path("step")), w.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := os.OpenFile(w.path("agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd.Stderr = log
	ready := make(lines, 8)
	cmd.Stdout = ready
	if err := w.node.Do(cmd.Start); err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	w.agent, w.done = cmd, done
	go func() { done <- cmd.Wait() }()
	select {
	case <-ready:
	case err := <-done:
		w.agent = nil
		w.t.Fatalf("agent does not start: %v: %s", err, w.log())
	case <-time.After(time.Minute): // on a host that starts hundreds of pods meanwhile
		w.t.Fatalf("agent is not ready: %s", w.log())
	}
}

func (w *world) log() string {
	b, _ := os.ReadFile(w.path("agent.log"))
	return string(b[max(len(b)-4000, 0):])
}

// kill ends the agent as a crash does.
func (w *world) kill() { _ = w.end(syscall.SIGKILL) }

// stop ends the agent as an administrator does.
func (w *world) stop() {
	w.t.Helper()
	if err := w.end(syscall.SIGTERM); err != nil {
		w.t.Errorf("agent ended with %v: %s", err, w.log())
	}
}

func (w *world) end(sig syscall.Signal) error {
	if w.agent == nil {
		return nil
	}
	_ = w.agent.Process.Signal(sig)
	w.agent = nil
	select {
	case err := <-w.done:
		return err
	case <-time.After(30 * time.Second):
		return errors.New("it does not end")
	}
}

// alive reports whether the agent still runs. After an interrupted call it waits for the agent's end.
func (w *world) alive(brokeOff bool) bool {
	patience := 10 * time.Millisecond
	if brokeOff {
		// A killed process ends only when the kernel has released its resources: on a host that was deleting a thousand
		// namespaces, that once took more than 5 s.
		patience = 30 * time.Second
	}
	select {
	case <-w.done:
		w.agent = nil
		return false
	case <-time.After(patience):
		return true
	}
}

// lines is a writer that hands on what is written.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// list is a network in the agent's conflist.
func (w *world) list(version string, delegates ...string) *libcni.NetworkConfigList {
	w.t.Helper()
	text := fmt.Sprintf(`{"cniVersion":%q,"name":"net","plugins":[{"type":"weft-cni","socket":%q,
		"capabilities":{"portMappings":true},"delegates":[%s]}]}`, version, w.socket(), strings.Join(delegates, ","))
	list, err := libcni.NetworkConfFromBytes([]byte(text))
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

func (w *world) ipam(subnet string) string {
	return fmt.Sprintf(`{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":%q}]],"routes":[{"dst":"0.0.0.0/0"}]}`,
		w.path("addresses"), subnet)
}

// networks are the networks that the tests are about, by name.
func (w *world) networks() map[string]string {
	ptp := fmt.Sprintf(`{"type":"ptp","ipMasq":true,"ipam":%s}`, w.ipam("10.7.0.0/16"))
	bridge := fmt.Sprintf(`{"type":"bridge","bridge":"br0","isDefaultGateway":true,"ipMasq":true,"ipam":%s}`,
		w.ipam("10.8.0.0/16"))
	foreign := fmt.Sprintf(`{"type":"foreign","mark":%q}`, w.path("marks"))
	late := fmt.Sprintf(
		`{"type":"bridge","bridge":"br0","isDefaultGateway":true,"ipMasq":true,"mark":%q,"ipam":{"type":"foreign"}}`,
		w.path("marks"),
	)
	return map[string]string{
		"late": late, // IPAM that is asked when the interface exists
		"guarded": fmt.Sprintf(
			`{"plugins":[%s,{"type":"bandwidth","ingressRate":8000000,"ingressBurst":800000,"egressRate":8000000,"egressBurst":800000},
			{"type":"firewall","ingressPolicy":"isolated"}]}`, bridge),
		"ptp": ptp, "bridge": bridge, "chain": fmt.Sprintf(`{"plugins":[%s,%s]}`, ptp, foreign),
	}
}

// routedOr is a network of that name; the routed one has no gateway of its own, so it is none of the others.
func (w *world) routedOr(name string) string {
	if name != "routed" {
		return w.networks()[name]
	}
	return fmt.Sprintf(`{"plugins":[{"type":"calico","mtu":1400,"ipam":%s},
		{"type":"bandwidth","ingressRate":8000000,"ingressBurst":800000,"egressRate":8000000,"egressBurst":800000}]}`, w.ipam("10.9.0.0/16"))
}

func runtimeConf(id string, ns *netns.NS) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: id, NetNS: ns.Path(), IfName: "eth0"}
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // a hundred calls at once on a busy host
	w.t.Cleanup(cancel)
	return ctx
}

func (w *world) add(list *libcni.NetworkConfigList, id string, ns *netns.NS) (*current.Result, error) {
	r, err := w.cni.AddNetworkList(w.ctx(), list, runtimeConf(id, ns))
	if err != nil {
		return nil, err
	}
	return current.NewResultFromResult(r)
}

func (w *world) del(list *libcni.NetworkConfigList, id string, ns *netns.NS) error {
	return w.cni.DelNetworkList(w.ctx(), list, runtimeConf(id, ns))
}

func (w *world) check(list *libcni.NetworkConfigList, id string, ns *netns.NS) error {
	return w.cni.CheckNetworkList(w.ctx(), list, runtimeConf(id, ns))
}

// code is the CNI code of an error.
func code(err error) uint {
	var e *types.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// detected waits for the end of duplicate address detection, after which the kernel adds the addresses' routes.
func detected(t *testing.T, ns *netns.NS) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); nettest.Run(t, ns, "ip", "-6", "-o", "addr", "show",
		"tentative") != ""; {
		if time.Now().After(until) {
			t.Fatal("an address stays tentative")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// host is everything on the node that an attachment may leave behind.
func (w *world) host() string {
	w.t.Helper()
	detected(w.t, w.node)
	var b strings.Builder
	for _, argv := range [][]string{
		{"ip", "-o", "link"},
		{"ip", "-o", "addr"},
		{"ip", "route", "show", "table", "all"},
		{"ip", "-6", "route", "show", "table", "all"},
		{"ip", "rule"},
		{"ip", "neigh", "show", "nud", "permanent"}, // the others come and go by themselves
		{"nft", "list", "ruleset"},
	} {
		fmt.Fprintln(&b, strings.Join(argv, " "))
		b.WriteString(nettest.Run(w.t, w.node, argv...))
	}
	for _, dir := range []string{"addresses", "marks", "run/queue", "cache"} {
		b.WriteString(w.files(dir))
	}
	return b.String()
}

// files lists what is below a directory, but for host-local's own memory.
func (w *world) files(dir string) string {
	var b strings.Builder
	_ = filepath.WalkDir(w.path(dir), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "lock" && !strings.HasPrefix(d.Name(), "last_reserved_ip") {
			fmt.Fprintln(&b, "file", path)
		}
		return nil
	})
	return b.String()
}

// settled waits until the host is as it was, and returns how it differs.
func (w *world) settled(before string) string {
	w.t.Helper()
	var now string
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(30 * time.Millisecond) {
		if now = w.host(); now == before {
			return ""
		}
	}
	return fmt.Sprintf("before:\n%s\nafter:\n%s\nagent: %s", before, now, w.log())
}

// reads waits until a pod's namespace, or a part of it, reads as wanted: links are deleted shortly after a DEL was
// answered, and carriers follow changes of links. It returns how it differs.
func (w *world) reads(read func() string, want string) string {
	w.t.Helper()
	var now string
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if now = read(); now == want {
			return ""
		}
	}
	return fmt.Sprintf("want:\n%s\nhave:\n%s\nagent: %s", want, now, w.log())
}

// lacks waits until an output lacks all words: links are deleted shortly after a DEL was answered. It returns the output if
// it does not.
func (w *world) lacks(read func() string, words ...string) string {
	w.t.Helper()
	var now string
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		now = read()
		if !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(now, word) }) {
			return ""
		}
	}
	return now
}

// records are how many attachments the ledger of the stopped agent knows.
func (w *world) records() int {
	w.t.Helper()
	l, err := ledger.Open(w.path("state"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	list, err := l.List()
	if err != nil {
		w.t.Error(err)
	}
	return len(list)
}

// queued are the entries of the DEL queue.
func (w *world) queued() int {
	files, _ := os.ReadDir(wire.QueueDir(w.socket()))
	return len(files)
}

// gc collects what belongs to none of the valid containers.
func (w *world) gc(list *libcni.NetworkConfigList, valid ...string) {
	w.t.Helper()
	args := &libcni.GCArgs{}
	for _, id := range valid {
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: id, IfName: "eth0"})
	}
	if err := w.cni.GCNetworkList(w.ctx(), list, args); err != nil {
		w.t.Errorf("GC: %v", err)
	}
}
