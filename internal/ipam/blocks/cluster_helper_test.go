// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

var (
	errAway  = errors.New("store does not answer")
	errCrash = errors.New("killed")
)

// line is an engine's way to the store. It can be cut, before a request arrives or behind it.
type line struct {
	store.Objects
	mu       sync.Mutex
	cut      bool // nothing arrives
	deaf     bool // what is written arrives, and the answer is lost
	late     bool // what is written arrives when deliver is called, perhaps after its sender was killed
	pending  []func()
	requests int
}

// deliver lets what was late arrive.
func (l *line) deliver() {
	l.mu.Lock()
	pending := l.pending
	l.pending = nil
	l.mu.Unlock()
	for _, arrive := range pending {
		arrive()
	}
}

// write is the way of a request that writes.
func (l *line) write(do func() (store.Object, error)) (store.Object, error) {
	deaf, err := l.send()
	if err != nil {
		return store.Object{}, err
	}
	l.mu.Lock()
	late := l.late
	if late {
		l.pending = append(l.pending, func() { _, _ = do() })
	}
	l.mu.Unlock()
	if late {
		return store.Object{}, errAway
	}
	got, err := do()
	if deaf {
		return store.Object{}, errAway
	}
	return got, err
}

func (l *line) set(cut, deaf bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.deaf = cut, deaf
}

func (l *line) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests
}

func (l *line) send() (deaf bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	if l.cut {
		return false, errAway
	}
	return l.deaf, nil
}

func (l *line) Get(ctx context.Context, kind store.Kind, key store.Key) (store.Object, error) {
	deaf, err := l.send()
	if deaf || err != nil {
		return store.Object{}, errAway
	}
	return l.Objects.Get(ctx, kind, key)
}

func (l *line) List(ctx context.Context, kind store.Kind) ([]store.Object, error) {
	deaf, err := l.send()
	if deaf || err != nil {
		return nil, errAway
	}
	return l.Objects.List(ctx, kind)
}

func (l *line) Create(ctx context.Context, kind store.Kind, o store.Object) (store.Object, error) {
	return l.write(func() (store.Object, error) { return l.Objects.Create(context.WithoutCancel(ctx), kind, o) })
}

func (l *line) CompareAndSwap(
	ctx context.Context, kind store.Kind, version string, o store.Object,
) (store.Object, error) {
	return l.write(func() (store.Object, error) {
		return l.Objects.CompareAndSwap(context.WithoutCancel(ctx), kind, version, o)
	})
}

func (l *line) Delete(ctx context.Context, kind store.Kind, key store.Key, version string) error {
	_, err := l.write(func() (store.Object, error) {
		return store.Object{}, l.Objects.Delete(context.WithoutCancel(ctx), kind, key, version)
	})
	return err
}

// node is a host with an engine.
type node struct {
	t      testing.TB
	name   string
	line   *line
	config Config
	engine *Engine
	// ledger is what the agent has recorded: it survives the engine.
	ledger map[model.AttachmentKey][]netip.Addr
	confs  map[model.AttachmentKey]string
}

// fastDir is a directory that waits for no disk, where there is one: the journal is synced often.
func fastDir(t testing.TB) string {
	path, err := os.MkdirTemp("/dev/shm", "weft-blocks-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(path) })
	return path
}

// cluster makes nodes around one directory of manifests.
func cluster(t testing.TB, manifests map[string]string) (*dir.Store, string) {
	t.Helper()
	path := fastDir(t)
	for name, text := range manifests {
		if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s, path
}

func join(t testing.TB, path, name string, change func(*Config)) *node {
	t.Helper()
	s, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{
		t: t, name: name, line: &line{Objects: s.Objects()}, ledger: map[model.AttachmentKey][]netip.Addr{},
		confs: map[model.AttachmentKey]string{},
	}
	n.config = Config{
		Objects: n.line, Node: name, Dir: fastDir(t), Log: logTo(t, name), Now: time.Now, After: time.After,
		Random: rand.New(rand.NewSource(int64(len(name)) + int64(name[len(name)-1]))),
	}
	if change != nil {
		change(&n.config)
	}
	n.start()
	return n
}

// start starts the engine, or what comes after a kill.
func (n *node) start() {
	n.t.Helper()
	e, err := Open(n.config)
	if err != nil {
		n.t.Fatal(err)
	}
	n.engine = e
	var reqs []ipam.Request
	for key, addrs := range n.ledger {
		reqs = append(reqs, n.req(n.confs[key], key, addrs...))
	}
	e.Restore(context.Background(), reqs)
}

func (n *node) req(conf string, key model.AttachmentKey, held ...netip.Addr) ipam.Request {
	return ipam.Request{
		Conf: json.RawMessage(conf), Network: key.Network, ContainerID: key.ContainerID, IfName: key.IfName, Held: held,
	}
}

func key(id string) model.AttachmentKey {
	return model.AttachmentKey{Network: "net", ContainerID: id, IfName: "net1"}
}

// add is an ADD with its record.
func (n *node) add(conf, id string, args ...[2]string) ([]netip.Addr, error) {
	req := n.req(conf, key(id))
	req.Args = args
	result, err := n.engine.Allocators()[1].Add(context.Background(), req)
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, ip := range result.IPs {
		addrs = append(addrs, ip.Address.Addr())
	}
	n.ledger[key(id)], n.confs[key(id)] = addrs, conf
	return addrs, nil
}

func (n *node) mustAdd(conf, id string) string {
	n.t.Helper()
	addrs, err := n.add(conf, id)
	if err != nil {
		n.t.Fatalf("node %s: %v", n.name, err)
	}
	return fmt.Sprint(addrs)
}

func (n *node) del(id string) {
	n.t.Helper()
	if err := n.engine.Allocators()[1].Del(context.Background(), n.req("", key(id), n.ledger[key(id)]...)); err != nil {
		n.t.Fatal(err)
	}
	delete(n.ledger, key(id))
}

// run runs the engine until the test ends, or until it is stopped.
func (n *node) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done, e := make(chan struct{}), n.engine
	go func() { _ = e.Run(ctx); close(done) }()
	stop = func() { cancel(); <-done }
	n.t.Cleanup(stop)
	return stop
}

func rangeConf1(r string, more ...string) string {
	s := `{"cniVersion":"1.0.0","name":"net","type":"macvlan","ipam":{"type":"whereabouts","range":"` + r + `"`
	for _, m := range more {
		s += "," + m
	}
	return s + "}}"
}

// eventually waits for something, at most ten seconds.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 6000 {
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("not within a minute: %s", what)
}

// logTo shows an engine's log in the test's output.
func logTo(t testing.TB, name string) *slog.Logger {
	if !testing.Verbose() {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", name)
}
