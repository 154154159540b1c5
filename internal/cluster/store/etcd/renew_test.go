// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/cluster/store/etcd"
	"github.com/weft-net/weft/internal/model"
)

// keep runs a renewer until the test stops it.
func (w *world) keep(k *etcd.LeaseRenewer) (stop func() error) {
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

// left returns the remaining time of a key's lease, in seconds, and the lease's ID.
func (w *world) left(key string) (int64, clientv3.LeaseID) {
	w.t.Helper()
	answer, err := w.raw.Get(w.ctx, w.prefix+"/subnets/"+key)
	if err != nil || len(answer.Kvs) == 0 {
		return -1, 0
	}
	id := clientv3.LeaseID(answer.Kvs[0].Lease)
	ttl, err := w.raw.TimeToLive(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return ttl.TTL, id
}

// renewal: a lease with a short TTL is renewed past its expiry, and has the published values.
func renewal(w *world) {
	const ttl = 10 * time.Second
	r := w.open(func(c *etcd.Config) { c.TTL = ttl })
	h := w.acquire(r, "192.168.0.1")
	k := r.Renewer(h, ttl/2)
	stop := w.keep(k)
	k.Publish(model.Published{
		Backend: "vxlan", Data: `{"VNI":9}`, Addrs: []netip.Addr{netip.MustParseAddr("192.168.0.1")},
	})
	w.until("the node's published values", func() bool { return strings.Contains(w.keys()[h.Key()], `{"VNI":9}`) })
	started, lowest := time.Now(), int64(1000)
	w.until("twice the time of the lease", func() bool {
		left, _ := w.left(h.Key())
		lowest = min(lowest, left)
		return time.Since(started) > 2*ttl
	})
	if lowest < 0 {
		w.t.Error("the lease has ended meanwhile")
	}
	if err := stop(); err != nil {
		w.t.Error(err)
	}
	if len(w.keys()) != 1 {
		w.t.Error("the lease ended with its renewer")
	}
}

// hands is a clock that a test sets: it fires at once on demand, and shows the time that the test sets.
type hands struct {
	mu    sync.Mutex
	now   time.Time
	fires chan time.Time
}

func (h *hands) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func (h *hands) set(by time.Duration) {
	h.mu.Lock()
	h.now = h.now.Add(by)
	h.mu.Unlock()
	h.fires <- time.Time{}
}

// jump: the clock jumps forward by more than the lease, backward before the renewal, and not at all.
func jump(w *world) {
	h := &hands{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), fires: make(chan time.Time)}
	r := w.open(func(c *etcd.Config) { c.Now, c.After = h.Now, func(time.Duration) <-chan time.Time { return h.fires } })
	held := w.acquire(r, "192.168.0.1")
	k := r.Renewer(held, time.Hour)
	stop := w.keep(k)
	_, before := w.left(held.Key())
	for _, by := range []time.Duration{time.Minute, 25 * time.Hour, -48 * time.Hour, 23*time.Hour + time.Minute} {
		// What the lease lasts goes down while nothing happens; only a renewal brings it up.
		w.until("an older lease", func() bool { left, _ := w.left(held.Key()); return left < 24*60*60-5 })
		h.set(by)
		if by == time.Minute {
			continue
		}
		w.until(fmt.Sprint("renewal after ", by), func() bool { left, _ := w.left(held.Key()); return left >= 24*60*60-5 })
	}
	if _, id := w.left(held.Key()); id != before {
		w.t.Error("it is another lease")
	}
	if err := stop(); err != nil {
		w.t.Error(err)
	}
}

// gone: an expired lease is claimed again; if another node has the subnet by then, the lease is lost, and that is
// reported.
func gone(w *world) {
	r := w.open(nil)
	h := w.acquire(r, "192.168.0.1")
	k := r.Renewer(h, time.Hour)
	stop := w.keep(k)
	_, id := w.left(h.Key())
	if _, err := w.raw.Revoke(w.ctx, id); err != nil {
		w.t.Fatal(err)
	}
	k.KeyGone()
	w.until("the lease again", func() bool { return len(w.keys()) == 1 })
	_, id = w.left(h.Key())
	if err := stop(); err != nil {
		w.t.Error(err)
	}
	if _, err := w.raw.Revoke(w.ctx, id); err != nil {
		w.t.Fatal(err)
	}
	w.put("subnets/10.5.1.0-24", `{"PublicIP":"192.168.0.2","PublicIPv6":null,"BackendType":"vxlan"}`)
	k = r.Renewer(h, time.Hour)
	k.KeyGone()
	if err := k.Run(w.ctx); !errors.Is(err, etcd.ErrLost) {
		w.t.Error(err)
	}
}

func password(w *world) {
	for _, err := range []error{
		second(w.raw.RoleAdd(w.ctx, "root")), second(w.raw.UserAdd(w.ctx, "root", "secret")),
		second(w.raw.UserGrantRole(w.ctx, "root", "root")),
		second(w.raw.AuthEnable(w.ctx)),
	} {
		if err != nil {
			w.t.Fatal(err)
		}
	}
	if _, err := w.open(nil).NetConf(w.ctx); err == nil {
		w.t.Error("nobody was asked for a password")
	}
	text, err := w.open(func(c *etcd.Config) { c.Username, c.Password = "root", "secret" }).NetConf(w.ctx)
	if err != nil || string(text) != conf {
		w.t.Error(string(text), err)
	}
	_, err = w.open(func(c *etcd.Config) { c.Username, c.Password = "root", "wrong" }).NetConf(w.ctx)
	if err == nil || strings.Contains(err.Error(), "wrong") {
		w.t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestTLS: etcd that wants a certificate.
func TestTLS(t *testing.T) {
	e := apitest.StartEtcd(t, nil, netip.MustParseAddr("127.0.0.1"), true)
	w := &world{Etcd: e, t: t, prefix: "/net"}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r := w.open(func(c *etcd.Config) { c.CAFile, c.CertFile, c.KeyFile = e.CAFile, e.CertFile, e.KeyFile })
	if _, err := r.NetConf(ctx); !errors.Is(err, etcd.ErrNoConfig) {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := w.open(func(c *etcd.Config) { c.CAFile = e.CAFile }).NetConf(short); err == nil ||
		errors.Is(err, etcd.ErrNoConfig) {
		t.Error("no certificate was wanted:", err)
	}
}

// TestAway: etcd is not there at first, goes away, comes back, and comes back empty.
func TestAway(t *testing.T) {
	e := apitest.StartEtcd(t, nil, netip.MustParseAddr("127.0.0.1"), false)
	w := newWorld(t, e, "net", conf)
	w.put("subnets/10.5.1.0-24", `{"PublicIP":"192.168.0.1","PublicIPv6":null,"BackendType":"vxlan"}`)
	e.Stop()
	r := w.open(nil)
	sent, stop := w.follow(r)
	defer stop()
	e.Restart()
	const known = "added 10.5.1.0-24[192.168.0.1][10.5.1.0/24]vxlan<nil>\nsynced"
	w.until("the first picture", func() bool { return sent() == known })
	h := w.acquire(r, "192.168.0.2")
	k := r.Renewer(h, time.Hour)
	renewer := w.keep(k)
	both := known + "\nadded 10.5.2.0-24[192.168.0.2][10.5.2.0/24]vxlan<nil>"
	w.until("the node itself", func() bool { return sent() == both })
	e.Stop()
	e.DeleteData()
	e.Restart()
	w.put("other", "x") // it answers
	if sent() != both {
		t.Errorf("an etcd without configuration is believed:\n%s", sent())
	}
	w.put("config", conf)
	w.until("what is gone is told", func() bool { return strings.Count(sent(), "deleted") == 2 })
	k.KeyGone()
	w.until("the node claims its subnet again", func() bool { return w.keys()["10.5.2.0-24"] != "" })
	if err := renewer(); err != nil {
		t.Error(err)
	}
}

// TestBadAccess: each fault names field and value.
func TestBadAccess(t *testing.T) {
	w := &world{Etcd: &apitest.Etcd{URL: "http://127.0.0.1:1"}, t: t, prefix: "/net"}
	for want, change := range map[string]func(*etcd.Config){
		`etcd-endpoints is empty (write for example http://127.0.0.1:2379)`: func(
			c *etcd.Config,
		) {
			c.Endpoints = nil
		},
		`etcd-endpoints "127.0.0.1:2379" is no URL of an etcd (write for example http://127.0.0.1:2379)`: func(
			c *etcd.Config,
		) {
			c.Endpoints = []string{"127.0.0.1:2379"}
		},
		`etcd-prefix "/" names no key (flannel's is /coreos.com/network)`: func(
			c *etcd.Config,
		) {
			c.Prefix = "/"
		},
		`etcd-keyfile "" and etcd-certfile "a" belong together (set both, or neither)`: func(
			c *etcd.Config,
		) {
			c.CertFile = "a"
		},
		`etcd-password is set without etcd-username (set the user too)`: func(
			c *etcd.Config,
		) {
			c.Password = "p"
		},
		`etcd-cafile "/nowhere": open /nowhere: no such file or directory (it is a PEM file of certificates)`: func(
			c *etcd.Config,
		) {
			c.CAFile = "/nowhere"
		},
	} {
		cfg := w.config()
		change(&cfg)
		if _, err := etcd.Open(cfg); err == nil || strings.TrimPrefix(err.Error(), "") != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}
