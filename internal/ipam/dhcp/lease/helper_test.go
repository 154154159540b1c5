// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/dhcp/exchange"
	"github.com/weft-net/weft/internal/ipam/dhcp/lease"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// wire is a bridge in the test's own namespace, with a DHCP server and containers.
type wire struct {
	t      *testing.T
	dir    string
	leases string // dnsmasq's file
	server *exec.Cmd
	log    lines
	n      int
}

// lines is a log that can be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

const (
	range4 = "--dhcp-range=10.9.0.50,10.9.0.99,255.255.255.0,2m"
	range6 = "--dhcp-range=fd00:9::50,fd00:9::99,64,2m"
)

func newWire(t *testing.T) *wire {
	t.Helper()
	if _, err := exec.LookPath("dnsmasq"); err != nil {
		nettest.SkipMissing(t, "no dnsmasq: apt-get install dnsmasq-base")
	}
	_, _ = nettest.Try(nil, "ip", "link", "del", "dbr0")
	w := &wire{t: t, dir: t.TempDir()}
	w.leases = filepath.Join(w.dir, "dnsmasq.leases")
	for _, cmd := range []string{
		"ip link set lo up", "ip link add dbr0 address 02:00:00:00:00:01 type bridge", "ip addr add 10.9.0.1/24 dev dbr0",
		"ip addr add fd00:9::1/64 dev dbr0 nodad", "ip link set dbr0 up",
	} {
		nettest.Run(t, nil, strings.Fields(cmd)...)
	}
	t.Cleanup(func() {
		w.stop()
		_, _ = nettest.Try(nil, "ip", "link", "del", "dbr0")
		if t.Failed() {
			t.Logf("dnsmasq:\n%s", w.log.String())
		}
	})
	return w
}

// serve starts dnsmasq.
func (w *wire) serve(options ...string) {
	w.t.Helper()
	args := append([]string{
		"--no-daemon", "--conf-file=/dev/null", "--port=0", "--interface=dbr0", "--bind-interfaces", "--no-ping",
		"--dhcp-leasefile=" + w.leases, "--pid-file=", "--user=root", "--log-dhcp", "--log-facility=-",
	}, options...)
	before := strings.Count(w.log.String(), "started")
	w.server = exec.Command("dnsmasq", args...)
	w.server.Stdout, w.server.Stderr = &w.log, &w.log
	if err := w.server.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.until("dnsmasq starts", func() bool { return strings.Count(w.log.String(), "started") > before })
}

func (w *wire) stop() {
	if w.server == nil {
		return
	}
	_ = w.server.Process.Kill()
	_ = w.server.Wait()
	w.server = nil
}

func (w *wire) until(what string, ok func() bool) {
	w.t.Helper()
	const limit = time.Minute
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	w.t.Fatalf("%s: not within %s", what, limit)
}

// leased returns the addresses that the server has leased.
func (w *wire) leased() string {
	b, _ := os.ReadFile(w.leases)
	var out []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 2 && f[0] != "duid" {
			out = append(out, f[2])
		}
	}
	return strings.Join(out, " ")
}

// pod is a container with an interface on the bridge, which is down.
func (w *wire) pod() *netns.NS {
	w.t.Helper()
	w.n++
	ns := nettest.NS(w.t, fmt.Sprintf("pod%d", w.n))
	host := fmt.Sprintf("dveth%d", w.n)
	_, _ = nettest.Try(nil, "ip", "link", "del", host) // of the test before, whose namespace is being removed
	nettest.Run(w.t, nil, "ip", "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", ns.Path())
	nettest.Run(w.t, nil, "ip", "link", "set", host, "master", "dbr0", "up")
	// No other host can have the link-local address; duplicate address detection takes seconds.
	_, _ = nettest.Try(ns, "sh", "-c", "echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_dad")
	return ns
}

// manager opens a Manager in the network's directory.
func (w *wire) manager(edit ...func(*lease.Config)) *lease.Manager {
	w.t.Helper()
	cfg := w.config()
	for _, e := range edit {
		e(&cfg)
	}
	k, err := lease.Open(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	var once sync.Once
	w.t.Cleanup(func() { once.Do(func() { _ = k.Close() }) })
	return k
}

func (w *wire) config() lease.Config {
	return lease.Config{
		Dir: filepath.Join(w.dir, "leases"), Boot: "this boot", Poll: 50 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Exchange: exchange.Options{
			Now: time.Now, Random: rand.Reader, Timeout: 3 * time.Second, ResendMax: time.Second, ResendTimeout: 5 * time.Second,
		},
	}
}

// files returns the lease files.
func (w *wire) files() []string {
	found, err := filepath.Glob(filepath.Join(w.dir, "leases", "*.json*"))
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

func req(ns *netns.NS, id, ipamKeys string) ipam.Request {
	conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"net","type":"bridge","ipam":{"type":"dhcp"%s}}`, ipamKeys)
	return ipam.Request{Conf: json.RawMessage(conf), Network: "net", ContainerID: id, IfName: "eth0", Netns: ns.Path()}
}

func (w *wire) add(k *lease.Manager, a ipam.Request) model.Result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	r, err := k.Add(ctx, a)
	if err != nil {
		w.t.Fatalf("ADD: %v", err)
	}
	return r
}

// addPatiently is add by a manager that waits a second for the server, which the server of a busy host may not keep.
func (w *wire) addPatiently(k *lease.Manager, a ipam.Request) (r model.Result) {
	w.t.Helper()
	w.until("a lease", func() bool {
		var err error
		r, err = k.Add(w.t.Context(), a)
		return err == nil
	})
	return r
}

func show(r model.Result) string {
	var out []string
	for _, ip := range r.IPs {
		s := ip.Address.String()
		if ip.Gateway.IsValid() {
			s += " via " + ip.Gateway.String()
		}
		out = append(out, s)
	}
	for _, x := range r.Routes {
		s := "route " + x.Dst.String()
		if x.GW.IsValid() {
			s += " via " + x.GW.String()
		}
		if x.MTU > 0 {
			s += fmt.Sprintf(" mtu %d", x.MTU)
		}
		if x.Priority > 0 {
			s += fmt.Sprintf(" priority %d", x.Priority)
		}
		if x.Scope != nil {
			s += fmt.Sprintf(" scope %d", *x.Scope)
		}
		out = append(out, s)
	}
	if !r.DNS.IsZero() {
		out = append(out, fmt.Sprintf("dns %v %q %v", r.DNS.Nameservers, r.DNS.Domain, r.DNS.Search))
	}
	return strings.Join(out, ", ")
}
