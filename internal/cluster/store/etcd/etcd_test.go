// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/etcd"
	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) {
	if slices.ContainsFunc(os.Args, func(s string) bool { return strings.HasPrefix(s, "-test.fuzz=") }) {
		os.Exit(m.Run()) // a fuzzing process needs no namespaces, and talks to its children
	}
	os.Exit(nettest.Main(m))
}

const limit = time.Minute

// world is one etcd, and the network below a prefix of its own.
type world struct {
	*apitest.Etcd
	t      *testing.T
	prefix string
	raw    *clientv3.Client
	ctx    context.Context //nolint:containedctx // a test's
}

const conf = `{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}`

func newWorld(t *testing.T, e *apitest.Etcd, prefix, conf string) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	raw, err := clientv3.New(clientv3.Config{Endpoints: []string{e.URL}, Logger: zap.NewNop(), DialTimeout: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	w := &world{Etcd: e, t: t, prefix: "/" + prefix, raw: raw, ctx: ctx}
	if conf != "" {
		w.put("config", conf)
	}
	return w
}

func (w *world) put(key, value string) {
	w.t.Helper()
	if _, err := w.raw.Put(w.ctx, w.prefix+"/"+key, value); err != nil {
		w.t.Fatal(err)
	}
}

// keys are those below subnets with their values.
func (w *world) keys() map[string]string {
	w.t.Helper()
	answer, err := w.raw.Get(w.ctx, w.prefix+"/subnets/", clientv3.WithPrefix())
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]string{}
	for _, kv := range answer.Kvs {
		out[strings.TrimPrefix(string(kv.Key), w.prefix+"/subnets/")] = string(kv.Value)
	}
	return out
}

func (w *world) config() etcd.Config {
	return etcd.Config{
		Access: etcd.Access{Endpoints: []string{w.URL}, Prefix: w.prefix},
		Log:    slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
		Random: func(int) int { return 0 },
	}
}

func (w *world) open(change func(*etcd.Config)) *etcd.Registry {
	w.t.Helper()
	cfg := w.config()
	if change != nil {
		change(&cfg)
	}
	r, err := etcd.Open(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = r.Close() })
	return r
}

// request is that of the node with an address.
func (w *world) request(addr string, previous ...string) etcd.Request {
	w.t.Helper()
	answer, err := w.raw.Get(w.ctx, w.prefix+"/config")
	if err != nil {
		w.t.Fatal(err)
	}
	c, _, err := flannel.ParseNetConf(answer.Kvs[0].Value)
	if err != nil {
		w.t.Fatal(err)
	}
	req := etcd.Request{Conf: c, Addrs: []netip.Addr{netip.MustParseAddr(addr)}}
	for _, p := range previous {
		req.Previous = append(req.Previous, netip.MustParsePrefix(p))
	}
	req.Publish = func(string, []netip.Prefix, *model.Published) (model.Published, error) {
		return model.Published{Backend: c.Backend.Type, Data: `{"VNI":1}`, Addrs: req.Addrs}, nil
	}
	return req
}

func (w *world) acquire(r *etcd.Registry, addr string, previous ...string) etcd.OwnLease {
	w.t.Helper()
	h, err := r.Acquire(w.ctx, w.request(addr, previous...))
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: not within %s", what, limit)
		}
	}
}

// TestEtcd is everything that can be seen at one etcd; each part has a network of its own.
func TestEtcd(t *testing.T) {
	nettest.EndToEnd(t)
	e := apitest.StartEtcd(t, nil, netip.MustParseAddr("127.0.0.1"), false)
	for name, part := range map[string]func(*world){
		"acquire": acquired, "previous": previous, "race": race, "overlap": overlapping, "exhausted": exhausted,
		"reservation": reservation, "other": otherConfiguration,
	} {
		t.Run(name, func(t *testing.T) { part(newWorld(t, e, name, conf)) })
	}
	t.Run("renewal", func(t *testing.T) { renewal(newWorld(t, e, "renewal", conf)) })
	t.Run("jump", func(t *testing.T) { jump(newWorld(t, e, "jump", conf)) })
	t.Run("gone", func(t *testing.T) { gone(newWorld(t, e, "gone", conf)) })
	t.Run("watch", func(t *testing.T) { watched(newWorld(t, e, "watch", conf)) })
	t.Run("dual", func(t *testing.T) {
		dual(
			newWorld(t, e, "dual",
				`{"Network": "10.5.0.0/16", "EnableIPv6": true, "IPv6Network": "fc00::/48", "Backend": {"Type": "host-gw"}}`),
		)
	})
	t.Run("second endpoint", func(t *testing.T) {
		w := newWorld(t, e, "second", conf)
		r := w.open(func(c *etcd.Config) { c.Endpoints = []string{"http://127.0.0.1:1", w.URL} })
		for range 2 {
			if text, err := r.NetConf(w.ctx); err != nil || string(text) != conf {
				t.Error(string(text), err)
			}
		}
	})
	t.Run("password", func(t *testing.T) { password(newWorld(t, e, "password", conf)) }) // last: it locks the door
}

// acquired: a node's key and value are flannel's, and a node that joins again gets the same subnet.
func acquired(w *world) {
	r := w.open(nil)
	h := w.acquire(r, "192.168.0.1")
	if got := fmt.Sprint(w.keys()); got !=
		`map[10.5.1.0-24:{"PublicIP":"192.168.0.1","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1}}]` {
		w.t.Error(got)
	}
	if h.Name() != "10.5.1.0-24" {
		w.t.Error(h.Name())
	}
	again := w.open(func(c *etcd.Config) { c.Random = func(n int) int { return n - 1 } })
	if h := w.acquire(again, "192.168.0.1"); h.Key() != "10.5.1.0-24" {
		w.t.Error("another subnet: ", h)
	}
	if h := w.acquire(again, "192.168.0.2"); h.Key() != "10.5.101.0-24" {
		w.t.Error("not the last of the first hundred that are free: ", h)
	}
	answer, err := w.raw.Get(w.ctx, w.prefix+"/subnets/10.5.1.0-24")
	if err != nil {
		w.t.Fatal(err)
	}
	ttl, err := w.raw.TimeToLive(w.ctx, clientv3.LeaseID(answer.Kvs[0].Lease))
	if err != nil || ttl.GrantedTTL != 24*60*60 {
		w.t.Error(ttl, err)
	}
}

// previous: the subnet of subnet.env is leased again unless another node has it.
func previous(w *world) {
	r := w.open(nil)
	if h := w.acquire(r, "192.168.0.1", "10.5.77.1/24"); h.Key() != "10.5.77.0-24" {
		w.t.Error(h)
	}
	for addr, previous := range map[string]string{
		"192.168.0.2": "10.5.77.1/24", "192.168.0.3": "10.6.1.1/24", "192.168.0.4": "10.5.78.1/25",
	} {
		if h := w.acquire(r, addr, previous); h.Key() == "10.5.77.0-24" || h.Subnet.Bits() != 24 ||
			!netip.MustParsePrefix("10.5.0.0/16").Overlaps(h.Subnet) {
			w.t.Error(previous, h)
		}
	}
}

// race: many nodes that request the same subnet get one each.
func race(w *world) {
	var nodes sync.WaitGroup
	var mu sync.Mutex
	got := map[string]int{}
	for i := range 8 {
		r, req := w.open(nil), w.request(fmt.Sprintf("192.168.0.%d", i+1)) // each chooses the first that is free
		nodes.Go(func() {
			h, err := r.Acquire(w.ctx, req)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				w.t.Error(err)
			}
			got[h.Key()]++
		})
	}
	nodes.Wait()
	if len(got) != 8 || len(w.keys()) != 8 {
		w.t.Error(got, w.keys())
	}
}

// overlapping: of two keys that overlap the older one stays.
func overlapping(w *world) {
	r := w.open(nil)
	req := w.request("192.168.0.1")
	publish := req.Publish
	raced := false
	req.Publish = func(name string, subnets []netip.Prefix, had *model.Published) (model.Published, error) {
		if !raced { // between the choice and the claim
			raced = true
			w.put("subnets/10.5.0.0-22", `{"PublicIP":"192.168.0.9","PublicIPv6":null,"BackendType":"host-gw"}`)
		}
		return publish(name, subnets, had)
	}
	h, err := r.Acquire(w.ctx, req)
	if err != nil || h.Key() != "10.5.4.0-24" || len(w.keys()) != 2 {
		w.t.Error(h, err, w.keys())
	}
}

func exhausted(w *world) {
	w.put("config", `{"Network": "10.5.0.0/28", "Backend": {"Type": "vxlan"}}`)
	r := w.open(nil)
	for i := range 3 {
		w.acquire(r, fmt.Sprintf("192.168.0.%d", i+1))
	}
	_, err := r.Acquire(w.ctx, w.request("192.168.0.4"))
	var f *model.Error
	if !errors.As(err, &f) || f.Code != model.CodeExhausted ||
		f.Msg != "network 10.5.0.0/28: all subnets of length 30 from 10.5.0.4 to 10.5.0.12 are leased" {
		w.t.Error(err)
	}
}

// reservation: a key without a lease stays reserved for its node.
func reservation(w *world) {
	w.put("subnets/10.5.9.0-24", `{"PublicIP":"192.168.0.1","PublicIPv6":null}`)
	if h := w.acquire(w.open(nil), "192.168.0.1"); h.Key() != "10.5.9.0-24" {
		w.t.Error(h)
	}
	answer, err := w.raw.Get(w.ctx, w.prefix+"/subnets/10.5.9.0-24")
	if err != nil || answer.Kvs[0].Lease != 0 || !strings.Contains(string(answer.Kvs[0].Value), "vxlan") {
		w.t.Error(answer, err)
	}
}

// otherConfiguration: a lease that the configuration no longer allows is released.
func otherConfiguration(w *world) {
	r := w.open(nil)
	w.acquire(r, "192.168.0.1")
	w.put("config", `{"Network": "10.6.0.0/16", "Backend": {"Type": "vxlan"}}`)
	if h := w.acquire(r, "192.168.0.1", "10.5.1.1/24"); h.Key() != "10.6.1.0-24" || len(w.keys()) != 1 {
		w.t.Error(h, w.keys())
	}
}

func dual(w *world) {
	if h := w.acquire(w.open(nil), "192.168.0.1"); h.Key() != "10.5.1.0-24&fc00:0:0:1::-64" || h.Name() != "10.5.1.0-24" {
		w.t.Error(h.Key())
	}
	if h := w.acquire(w.open(nil), "192.168.0.2"); h.Key() != "10.5.2.0-24&fc00:0:0:2::-64" {
		w.t.Error(h.Key())
	}
	if h := w.acquire(w.open(nil), "192.168.0.3", "10.5.8.1/24", "fc00:0:0:8::1/64"); h.Key() !=
		"10.5.8.0-24&fc00:0:0:8::-64" {
		w.t.Error(h.Key())
	}
}

// follow collects the events of a registry.
func (w *world) follow(r *etcd.Registry) (sent func() string, stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	events, err := r.Watch(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	var mu sync.Mutex
	var all []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range events {
			mu.Lock()
			line := string(e.Type)
			if e.Type != store.Synced {
				n, err := e.Object.Node()
				line += fmt.Sprintf(" %s%v%v%s%v", n.Name, n.Addrs, n.PodCIDRs, n.Published.Backend, err)
			}
			all = append(all, line)
			mu.Unlock()
		}
	}()
	return func() string {
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(all, "\n")
		}, func() {
			cancel()
			<-done
		}
}

func watched(w *world) {
	const first = `{"PublicIP":"192.168.0.1","PublicIPv6":null,"BackendType":"vxlan"}`
	w.put("subnets/10.5.1.0-24", first)
	w.put("subnets/nonsense", "x")
	sent, stop := w.follow(w.open(nil))
	defer stop()
	want := "added 10.5.1.0-24[192.168.0.1][10.5.1.0/24]vxlan<nil>\nsynced"
	expect := func(more string) {
		w.t.Helper()
		want += more
		w.until(want, func() bool { return sent() == want })
	}
	expect("")
	w.put("subnets/10.5.2.0-24", strings.Replace(first, "0.1", "0.2", 1))
	expect("\nadded 10.5.2.0-24[192.168.0.2][10.5.2.0/24]vxlan<nil>")
	w.put("subnets/10.5.2.0-24", strings.NewReplacer("0.1", "0.3", "vxlan", "host-gw").Replace(first))
	expect("\nmodified 10.5.2.0-24[192.168.0.3][10.5.2.0/24]host-gw<nil>")
	w.put("subnets/10.5.2.0-24", "x") // kept as it was
	if _, err := w.raw.Delete(w.ctx, w.prefix+"/subnets/10.5.1.0-24"); err != nil {
		w.t.Fatal(err)
	}
	expect("\ndeleted 10.5.1.0-24[192.168.0.1][10.5.1.0/24]vxlan<nil>")
}
