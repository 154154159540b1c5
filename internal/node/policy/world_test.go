// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/policy"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainParallel(m, 2)) }

// world is a node in the test's own namespace: pods with routed interfaces, a datastore of manifests, an enforcer.
type world struct {
	t     *testing.T
	dir   string
	store *dir.Store
	host  *kernel.Conn
	pods  map[string]*pod
	log   *lines

	*policy.Enforcer
	stop func()
}

// pod is a pod with an interface.
type pod struct {
	ns   *netns.NS
	addr netip.Addr
	link string
	model.WorkloadEndpoint
}

// lines is a log that can be read.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	_, _ = nettest.Try(nil, "nft", "flush", "ruleset")
	_, _ = nettest.Try(nil, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	_, _ = nettest.Try(nil, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0")
	nettest.Run(t, nil, "ip", "link", "set", "lo", "up")
	nettest.Run(t, nil, "ip", "addr", "replace", "10.9.0.1/32", "dev", "lo")
	host, err := kernel.Dial(nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: t.TempDir(), host: host, pods: map[string]*pod{}, log: &lines{}}
	if w.store, err = dir.Open(w.dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.halt()
		for _, p := range w.pods {
			_, _ = nettest.Try(nil, "ip", "link", "del", p.link)
		}
		_ = host.Close()
		if t.Failed() {
			t.Log(w.log.String())
		}
	})
	w.manifest("ns-shop",
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {kubernetes.io/metadata.name: shop}}\n")
	w.manifest("ns-bank",
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: bank, labels: {kubernetes.io/metadata.name: bank}}\n")
	return w
}

// start starts an enforcer, as an agent with existing pods does.
func (w *world) start(changes ...func(*policy.Config)) {
	w.t.Helper()
	w.halt()
	cfg := policy.Config{
		Node: "n1", Source: w.store.Objects(), Objects: w.store.Objects(), Host: w.host,
		Log: slog.New(slog.NewTextHandler(w.log, nil)), Now: time.Now, After: time.After,
	}
	for _, c := range changes {
		c(&cfg)
	}
	w.Enforcer = policy.New(cfg)
	for _, p := range w.pods {
		w.Adopt(p.WorkloadEndpoint)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func(e *policy.Enforcer) { done <- e.Run(ctx) }(w.Enforcer)
	w.stop = func() {
		cancel()
		if err := <-done; err != nil && ctx.Err() == nil {
			w.t.Error(err)
		}
	}
}

func (w *world) halt() {
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
}

// manifest writes a file of the datastore.
func (w *world) manifest(name, text string) {
	w.t.Helper()
	tmp := filepath.Join(w.dir, "."+name)
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(w.dir, name+".yaml")); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(name string) {
	w.t.Helper()
	if err := os.Remove(filepath.Join(w.dir, name+".yaml")); err != nil {
		w.t.Fatal(err)
	}
}

// object writes the manifest of a pod; its status has the addresses, as with a kubelet.
func (w *world) object(name, labels, node string, addrs ...string) {
	namespace, short, _ := strings.Cut(name, "/")
	status := ""
	if len(addrs) > 0 {
		status = "status: {phase: Running, podIPs: ["
		for _, a := range addrs {
			status += "{ip: " + a + "},"
		}
		status += "]}\n"
	}
	w.manifest("pod-"+namespace+"-"+short, fmt.Sprintf(
		"apiVersion: v1\nkind: Pod\nmetadata: {namespace: %s, name: %s, uid: uid-%s, labels: {%s}}\nspec: {nodeName: %s, containers: [{name: c, ports: [{name: web, containerPort: 80}]}]}\n%s",
		namespace, short, short, labels, node, status))
}

// guarded returns the interface of a pod that is about to be created.
func (w *world) guarded(name string) model.WorkloadEndpoint {
	namespace, short, _ := strings.Cut(name, "/")
	n := len(w.pods) + 2
	return model.WorkloadEndpoint{
		Attachment: model.AttachmentKey{Network: "net", ContainerID: "c-" + short, IfName: "eth0"},
		Pod:        model.PodRef{Namespace: namespace, Name: short, UID: "uid-" + short}, IfName: "eth0",
		HostLink: "cali" + short, HostEnd: model.HostEndRouted,
		Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 9, 0, byte(n)})},
	}
}

// pod creates a pod with a routed interface, in the order of an ADD.
func (w *world) pod(name, labels string) *pod {
	w.t.Helper()
	w.object(name, labels, "n1")
	g := w.guarded(name)
	if err := w.Admit(w.t.Context(), g); err != nil {
		w.t.Fatalf("ADD of %s: %v", name, err)
	}
	p := w.wire(g)
	w.pods[name] = p
	w.Attached(g.Attachment)
	return p
}

// wire creates the links and routes of a routed pod.
func (w *world) wire(g model.WorkloadEndpoint) *pod {
	w.t.Helper()
	ns := nettest.NS(w.t, g.Pod.Name)
	id, err := ns.ID()
	if err != nil {
		w.t.Fatal(err)
	}
	g.Netns, g.NetnsID = ns.Path(), id
	p := &pod{ns: ns, addr: g.Addrs[0], link: g.HostLink, WorkloadEndpoint: g}
	run := func(in *netns.NS, line string) { nettest.Run(w.t, in, strings.Fields(line)...) }
	run(nil, "ip link add "+g.HostLink+" address ee:ee:ee:ee:ee:ee type veth peer name tmp0")
	run(nil, fmt.Sprintf("ip link set tmp0 name eth0 netns %s", ns.Path()))
	run(ns, "ip link set lo up")
	run(ns, "ip addr add "+p.addr.String()+"/32 dev eth0")
	run(ns, "ip link set eth0 up")
	run(ns, "ip route add 169.254.1.1 dev eth0")
	run(ns, "ip neigh add 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent")
	run(ns, "ip route add default via 169.254.1.1")
	run(nil, "ip link set "+g.HostLink+" up")
	run(nil, "ip route add "+p.addr.String()+"/32 dev "+g.HostLink)
	w.carries(nil, g.HostLink)
	w.carries(ns, "eth0")
	return p
}

// carries waits until the kernel has noticed a link's carrier. Before that it drops packets, which the tests would take for
// a policy's denial.
func (w *world) carries(ns *netns.NS, link string) {
	w.t.Helper()
	w.eventually(link+" is up", func() bool {
		out := nettest.Run(w.t, ns, "ip", "-o", "link", "show", "dev", link)
		return strings.Contains(out, "state UP") && !strings.Contains(out, "qdisc noop ")
	})
}

// serve answers on a TCP port of the pod.
func (w *world) serve(p *pod, port int) {
	w.t.Helper()
	var l net.Listener
	err := p.ns.Do(func() (err error) {
		l, err = net.ListenTCP("tcp4", &net.TCPAddr{Port: port})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
}

// dial connects; a denied connection takes the timeout.
func dial(from *netns.NS, to netip.AddrPort, limit time.Duration) (net.Conn, error) {
	var c net.Conn
	err := from.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		tv := unix.NsecToTimeval(int64(limit))
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv)
		if err == nil {
			addr := &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
			err = unix.Connect(fd, addr)
			for errors.Is(err, unix.EINTR) { // a signal of the Go runtime: with a timeout the kernel does not restart the call
				err = unix.Connect(fd, addr)
			}
			if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EALREADY) {
				// A process that wakes up after the limit hears this also of a connection that was established in time.
				tv = unix.NsecToTimeval(int64(time.Millisecond))
				_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv)
				err = unix.Connect(fd, addr)
			}
		}
		if err != nil {
			_ = unix.Close(fd)
			return err
		}
		zero := unix.Timeval{}
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &zero)
		f := os.NewFile(uintptr(fd), "conn")
		c, err = net.FileConn(f)
		_ = f.Close()
		return err
	})
	return c, err
}

// reaches reports whether a connection is established soon, for what is expected to be denied. What must be
// established asks admits, since a busy host can take longer.
func reaches(from *netns.NS, to *pod, port uint16) bool { return connects(from, to.addr, port) }

func connects(from *netns.NS, to netip.Addr, port uint16) bool {
	// Not established in 300 ms may be a busy host, too.
	return establishes(from, to, port, 300*time.Millisecond) || establishes(from, to, port, time.Second)
}

// admits reports whether a connection can be established; it waits long for one that cannot.
func admits(from *netns.NS, to netip.Addr, port uint16) bool {
	return establishes(from, to, port, 20*time.Second)
}

func establishes(from *netns.NS, to netip.Addr, port uint16, limit time.Duration) bool {
	c, err := dial(from, netip.AddrPortFrom(to, port), limit)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// eventually waits until a condition is true.
func (w *world) eventually(what string, is func() bool) {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); !is(); {
		if time.Now().After(end) {
			w.t.Fatalf("never: %s\n%s", what, ruleset())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func ruleset() string {
	out, _ := nettest.Try(nil, "nft", "list", "ruleset")
	return out
}
