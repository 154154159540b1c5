// SPDX-License-Identifier: Apache-2.0

package cniconf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/node/install"
	"github.com/weft-net/weft/internal/node/podnetwork"
	"github.com/weft-net/weft/internal/node/readiness"
)

// network is weft's own pod network with a settable state.
type network struct {
	mu    sync.Mutex
	own   install.Own
	err   error
	asked int
}

func (n *network) Own() (install.Own, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	return n.own, n.err
}

func (n *network) set(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err = err
}

func (n *network) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

// logged is a log that can be read while it is written.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// count returns how many lines contain all the words.
func (l *logged) count(words ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
line:
	for line := range strings.Lines(l.b.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue line
			}
		}
		n++
	}
	return n
}

// writer returns a Writer for a directory that does not exist yet.
type writer struct {
	cfg  Config
	dir  string
	own  *network
	log  *logged
	stop func()
}

// configure returns the configuration of a Writer for a node with a podCIDR.
func configure(t *testing.T, mode config.Mode) *writer {
	w := &writer{
		dir: filepath.Join(t.TempDir(), "net.d"), log: &logged{},
		own: &network{
			own: install.Own{Name: "pods", Node: "n1", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.3.0/24")}},
		},
	}
	w.cfg = Config{
		Socket: wire.DefaultSocket, Network: config.Network{Mode: mode}, Install: config.Install{ConfDir: w.dir}, Own: w.own,
		PodMTU:    func(context.Context) (int, error) { return 1430, nil },
		Readiness: readiness.New(Component), Log: slog.New(slog.NewTextHandler(w.log, nil)), Now: time.Now, After: time.After,
	}
	return w
}

// run runs the Writer until stop is called or the test ends.
func (w *writer) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- New(w.cfg).Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func (w *writer) file(name string) string {
	b, _ := os.ReadFile(filepath.Join(w.dir, name))
	return string(b)
}

const ours = "00-weft.conflist"

// TestCluster: the configuration is written as soon as the node has addresses, restored when it is deleted, and kept
// when the agent ends: pods would start without a network, or with another vendor's.
func TestCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := configure(t, config.ModeCluster)
		w.run(t)
		defer w.stop()
		synctest.Wait()
		if err := w.cfg.Readiness.Err(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		first := w.file(ours)
		for _, want := range []string{`"name":"pods"`, "10.42.3.0/24", `"mtu":1430`} {
			if !strings.Contains(strings.ReplaceAll(first, ": ", ":"), want) {
				t.Errorf("no %s in %s", want, first)
			}
		}
		if strings.Contains(first, wire.DefaultSocket) {
			t.Errorf("names the socket that every plugin knows: %s", first)
		}
		if err := os.Remove(filepath.Join(w.dir, ours)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(checkPeriod)
		synctest.Wait()
		if w.file(ours) != first {
			t.Errorf("%v after it was taken away: %q", checkPeriod, w.file(ours))
		}
		time.Sleep(10 * checkPeriod)
		synctest.Wait()
		if n := w.log.count("network configuration"); n != 2 {
			t.Errorf("%d notes about 2 writes of the file", n)
		}
		w.stop()
		if w.file(ours) != first {
			t.Error("the configuration goes with the agent")
		}
	})
}

// TestNotFirst: while the runtime uses another network the node is not ready, since pods would run without policies, and
// that is logged once.
func TestNotFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := configure(t, config.ModeCluster)
		first := filepath.Join(w.dir, "00-other.conf")
		if err := errors.Join(os.MkdirAll(w.dir, 0o755),
			os.WriteFile(first, []byte(`{"cniVersion": "1.0.0", "name": "other", "type": "ptp"}`), 0o600)); err != nil {
			t.Fatal(err)
		}
		w.run(t)
		defer w.stop()
		time.Sleep(5 * checkPeriod)
		synctest.Wait()
		if err := w.cfg.Readiness.Err(); err == nil || !strings.Contains(err.Error(), first+": "+install.ErrNotFirst.Error()) {
			t.Errorf("readiness: %v", err)
		}
		if w.file(ours) == "" {
			t.Error("weft's configuration is not there for the moment at which the other is removed")
		}
		if n := w.log.count("level=ERROR", first, "instead of weft's"); n != 1 {
			t.Errorf("%d errors in the log", n)
		}
		if err := os.Remove(first); err != nil {
			t.Fatal(err)
		}
		time.Sleep(checkPeriod)
		synctest.Wait()
		if err := w.cfg.Readiness.Err(); err != nil {
			t.Errorf("after it was removed: %v", err)
		}
	})
}

// TestMTU: a configured MTU is used as it is. While the MTU that fits into the mesh is unknown there is no
// configuration: pods would start with an MTU that is too large.
func TestMTU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := configure(t, config.ModeCluster)
		w.cfg.PodMTU = func(context.Context) (int, error) { return 0, errors.New("the kernel does not answer") }
		w.run(t)
		synctest.Wait()
		if text, err := w.file(ours), w.cfg.Readiness.Err(); text != "" || err == nil ||
			!strings.Contains(err.Error(), "does not answer") {
			t.Errorf("wrote %q and is %v", text, err)
		}
		w.stop()

		w = configure(t, config.ModeCluster)
		w.cfg.Socket = "/run/elsewhere/cni.sock"
		w.cfg.PodMTU = func(context.Context) (int, error) { return 0, errors.New("asked for nothing") }
		w.own.own.MTU = 1280
		w.run(t)
		defer w.stop()
		synctest.Wait()
		if text := w.file(ours); !strings.Contains(text, "1280") || !strings.Contains(text, w.cfg.Socket) {
			t.Errorf("configuration %q, readiness %v", text, w.cfg.Readiness.Err())
		}
	})
}

// TestWaiting: a node without addresses is not ready, which is logged as information at first and as a warning once
// after a minute. A node that loses its addresses waits a minute again. Other failures are errors.
func TestWaiting(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		what string
	}{
		"prefix": {podnetwork.ErrNoPrefix, "waiting for the node's prefix"},
		"pool":   {podnetwork.ErrNoPools, "waiting for a pool of addresses"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := configure(t, config.ModeCluster)
				none := fmt.Errorf("node n1: %w", c.err)
				expect := func(when string, infos, warnings, errs int) {
					t.Helper()
					synctest.Wait()
					got := [3]int{
						w.log.count("level=INFO", c.what), w.log.count("level=WARN", "node has no addresses"),
						w.log.count("level=ERROR"),
					}
					if want := [3]int{infos, warnings, errs}; got != want {
						t.Errorf("%s: %v notes, warnings, errors; want %v", when, got, want)
					}
				}
				w.own.set(none)
				w.run(t)
				defer w.stop()
				expect("first", 1, 0, 0)
				if err := w.cfg.Readiness.Err(); err == nil || !strings.Contains(err.Error(), none.Error()) {
					t.Errorf("without addresses: %v", err)
				}
				time.Sleep(prefixWait - time.Second)
				expect("soon", 1, 0, 0)
				time.Sleep(2 * time.Second)
				expect("after a minute", 1, 1, 0)
				time.Sleep(10 * time.Minute)
				expect("after ten more", 1, 1, 0)
				w.own.set(nil)
				time.Sleep(retryPause)
				expect("with addresses", 1, 1, 0)
				if err := w.cfg.Readiness.Err(); err != nil || w.file(ours) == "" {
					t.Errorf("%v after it has addresses: %v, %q", retryPause, err, w.file(ours))
				}
				w.own.set(none)
				time.Sleep(checkPeriod)
				expect("without again", 2, 1, 0)
				time.Sleep(prefixWait + retryPause)
				expect("for a minute again", 2, 2, 0)
				w.own.set(errors.New("somebody else's file"))
				time.Sleep(10 * time.Second)
				expect("trouble", 2, 2, 1)
			})
		})
	}
}

// source is a cluster whose snapshots the test sets.
type source chan store.Event

func (s source) Watch(context.Context) (<-chan store.Event, error) { return s, nil }

// TestKnownSoon: the wait ends when the cluster is known.
func TestKnownSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := configure(t, config.ModeCluster)
		changed := make(source)
		w.cfg.Facts = facts.New(changed, "n1", slog.New(slog.DiscardHandler), time.After)
		set := make(chan error, 1)
		go func() { set <- w.cfg.Facts.Run(t.Context()) }()
		w.run(t)
		defer w.stop()
		changed <- store.Event{Type: store.Synced}
		synctest.Wait()
		if w.file(ours) == "" {
			t.Errorf("no configuration when the cluster is known: %v", w.cfg.Readiness.Err())
		}
		close(changed)
		if err := <-set; err != nil {
			t.Error(err)
		}
	})
}

// TestFirstSnapshot: until the cluster's first snapshot, for at most three seconds, missing data is no failure. The
// snapshot then takes effect immediately.
func TestFirstSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := configure(t, config.ModeCluster)
		changed := make(source)
		w.cfg.Facts = facts.New(changed, "n1", slog.New(slog.DiscardHandler), time.After)
		set := make(chan error, 1)
		go func() { set <- w.cfg.Facts.Run(t.Context()) }()
		w.own.set(errors.New("the cluster is not known yet"))
		w.run(t)
		defer w.stop()
		time.Sleep(syncWait - time.Millisecond)
		synctest.Wait()
		if n := w.own.count(); n != 0 {
			t.Errorf("asked %d times before the cluster is known", n)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if n := w.own.count(); n != 1 || w.log.count("level=ERROR", "not known yet") != 1 {
			t.Errorf("asked %d times within %v", n, syncWait)
		}
		w.own.set(nil)
		changed <- store.Event{Type: store.Synced}
		synctest.Wait()
		if w.file(ours) == "" {
			t.Errorf("no configuration when the cluster is known: %v", w.cfg.Readiness.Err())
		}
		close(changed)
		if err := <-set; err != nil {
			t.Error(err)
		}
	})
}

// until waits for a condition that a file change causes.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for begin := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

const vendors = `{"cniVersion":"1.0.0","name":"theirs","plugins":[{"type":"ptp","ipam":{"type":"host-local","subnet":"10.1.0.0/24"}}]}`

// TestMultus: Multus mode follows another vendor's network; weft's own is not used.
func TestMultus(t *testing.T) {
	w := configure(t, config.ModeMultus)
	w.cfg.Multus = config.Multus{
		NamespaceIsolation: true, GlobalNamespaces: []string{"shared"}, SystemNamespaces: []string{"core"},
		Namespace:       "network-system",
		DefaultNetworks: []string{"storage"}, ReadinessIndicatorFile: "/run/ready", NetworkDir: "/etc/cni/multus.d",
		LogFile: "/var/log/multus.log", LogLevel: "verbose",
	}
	w.run(t)
	defer w.stop()
	until(t, "trouble without a network to follow", func() bool {
		return w.log.count("level=ERROR", "network configuration") == 1
	})
	if err := os.WriteFile(filepath.Join(w.dir, "10-theirs.conflist"), []byte(vendors), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "readiness", func() bool { return w.cfg.Readiness.Err() == nil })
	text := strings.ReplaceAll(w.file("00-multus.conf"), ": ", ":")
	for _, want := range []string{
		`"namespaceIsolation":true`, `"globalNamespaces":"shared"`, `"core"`,
		`"multusNamespace":"network-system"`, `"storage"`,
		`"readinessindicatorfile":"/run/ready"`, `"confDir":"/etc/cni/multus.d"`,
		`"logFile":"/var/log/multus.log"`, `"logLevel":"verbose"`, "10.1.0.0/24",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if n := w.own.count(); n > 0 {
		t.Errorf("weft's own network was asked for %d times", n)
	}
}

// TestFlannel: flannel's file is copied to the runtime's directory and follows the ConfigMap; an invalid one is logged
// as an error, and the last valid one stays.
func TestFlannel(t *testing.T) {
	w := configure(t, config.ModeFlannel)
	w.cfg.Flannel.CNIConf = filepath.Join(t.TempDir(), "cni-conf.json")
	entries := make(chan time.Time)
	w.cfg.After = func(d time.Duration) <-chan time.Time {
		if d != checkPeriod {
			t.Errorf("waits for %v", d)
		}
		return entries
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(w.cfg.Flannel.CNIConf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(vendors)
	w.run(t)
	defer w.stop()
	until(t, "flannel's file and its form", func() bool {
		return w.file("10-flannel.conflist") == vendors && strings.Contains(w.file(ours), "10.1.0.0/24") &&
			w.cfg.Readiness.Err() == nil
	})
	next := strings.ReplaceAll(vendors, "10.1.0.0", "10.2.0.0")
	write(next)
	entries <- time.Time{}
	until(t, "the new file and its form", func() bool {
		return w.file("10-flannel.conflist") == next && strings.Contains(w.file(ours), "10.2.0.0/24")
	})
	write(`{"name":`)
	entries <- time.Time{}
	until(t, "an error about half a file", func() bool {
		return w.log.count("level=ERROR", "flannel.cniConf", w.cfg.Flannel.CNIConf) == 1
	})
	if text := w.file("10-flannel.conflist"); text != next {
		t.Errorf("half a file is in the place of flannel's: %q", text)
	}
}
