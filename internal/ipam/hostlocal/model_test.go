// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// naive is host-local written down as one would explain it: a map and a cursor.
type naive struct {
	usable []netip.Addr
	owner  map[netip.Addr]string
	next   int
}

func (n *naive) add(id string) (netip.Addr, bool) {
	for range n.usable {
		a := n.usable[n.next]
		n.next = (n.next + 1) % len(n.usable)
		if n.owner[a] == "" {
			n.owner[a] = id
			return a, true
		}
	}
	return netip.Addr{}, false
}

// TestAgainstTheNaiveModel lets random ADDs, DELs and GCs run: every answer is the model's, so no address is ever
// allocated twice and none is outside the range.
func TestAgainstTheNaiveModel(t *testing.T) {
	root := t.TempDir()
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		base := netip.MustParsePrefix(
			rapid.SampledFrom([]string{"10.1.0.0/29", "10.1.0.16/28", "fd00::/125"}).Draw(rt, "subnet"),
		)
		sp, err := readSpan("ipam", spanConf{Subnet: base.String()})
		if err != nil {
			rt.Fatal(err)
		}
		n := &naive{owner: map[netip.Addr]string{}}
		for a := sp.start; sp.contains(a); a = a.Next() {
			if a != sp.gateway {
				n.usable = append(n.usable, a)
			}
		}
		dir, err := os.MkdirTemp(root, "run")
		if err != nil {
			rt.Fatal(err)
		}
		allocator := New(Config{DataDir: dir, CallerKnows: rapid.Bool().Draw(rt, "callerKnows")})
		r := &run{rt: rt, n: n, a: allocator, conf: section(`{"type":"host-local","subnet":"` + base.String() + `"}`)}
		rt.Repeat(map[string]func(*rapid.T){"add": r.add, "del": r.del, "gc": r.gc, "": r.check})
	})
}

type run struct {
	rt   *rapid.T
	n    *naive
	a    *Allocator
	conf string
	made int
}

func (r *run) add(rt *rapid.T) {
	r.made++
	id := fmt.Sprint("c", r.made)
	want, ok := r.n.add(id)
	got, err := r.a.Add(context.Background(), req(r.conf, id))
	switch {
	case ok && (err != nil || got.IPs[0].Address.Addr() != want):
		rt.Fatalf("ADD %s: %v %v, want %s", id, got.IPs, err, want)
	case !ok:
		var f *model.Error
		if !errors.As(err, &f) || f.Code != model.CodeExhausted {
			rt.Fatalf("ADD %s to a full range: %v %v", id, got.IPs, err)
		}
	}
}

func (r *run) pick(rt *rapid.T) string {
	return fmt.Sprint("c", rapid.IntRange(1, r.made+1).Draw(rt, "id"))
}

func (r *run) del(rt *rapid.T) {
	q := req(r.conf, r.pick(rt))
	for a, id := range r.n.owner {
		if id == q.ContainerID {
			if rapid.Bool().Draw(rt, "held") {
				q.Held = []netip.Addr{a}
			}
			delete(r.n.owner, a)
			break
		}
	}
	if err := r.a.Del(context.Background(), q); err != nil {
		rt.Fatal(err)
	}
}

func (r *run) gc(rt *rapid.T) {
	keep := r.pick(rt)
	for a, id := range r.n.owner {
		if id != keep {
			delete(r.n.owner, a)
		}
	}
	if err := r.a.GC(context.Background(), req(r.conf, ""), []model.AttachmentKey{
		{ContainerID: keep, IfName: "eth0"},
	}); err != nil {
		rt.Fatal(err)
	}
}

func (r *run) check(rt *rapid.T) {
	dir, err := r.a.directoryOf(ipam.Request{Network: "net"})
	if err != nil {
		rt.Fatal(err)
	}
	have, err := taken(dir)
	if err != nil {
		rt.Fatal(err)
	}
	if len(have) != len(r.n.owner) {
		rt.Fatalf("%d files, the model has %d owners", len(have), len(r.n.owner))
	}
	for a, id := range r.n.owner {
		if content, err := readSmall(dir + "/" + a.String()); err != nil || content != owner(id, "eth0") {
			rt.Fatalf("%s says %q (%v), want %s", a, content, err, id)
		}
	}
}

func FuzzSettings(f *testing.F) {
	for _, s := range []string{
		section(`{"type":"host-local","subnet":"10.1.0.0/24"}`),
		section(`{"ranges":[[{"subnet":"fd00::/64","rangeStart":"fd00::5","rangeEnd":"fd00::9","gateway":"fd00::1"}]]}`),
		section(`{"subnet":"0.0.0.0/0"}`), section(`{"subnet":"255.255.255.252/30"}`),
		section(`{"subnet":"::ffff:1.2.3.0/120"}`),
		`{"ipam":null}`, `{"ipam":{"ranges":[null]}}`,
		`{"runtimeConfig":{"ips":["::ffff:1.2.3.4"]},"ipam":{"subnet":"::/0"}}`,
	} {
		f.Add(s, "IP", "10.1.0.5")
	}
	a := New(Config{DataDir: "/nowhere"})
	f.Fuzz(func(t *testing.T, conf, key, value string) {
		q := req(conf, "c")
		q.Args = [][2]string{{key, value}}
		s, err := a.settings(q)
		if err != nil {
			return
		}
		for _, set := range s.sets {
			tries := 0
			for addr := range set.from(netip.Addr{}) {
				if !set.contains(addr) {
					t.Fatalf("%s is not in %s", addr, set)
				}
				if tries++; tries == 300 {
					break
				}
			}
		}
	})
}

func FuzzResolvConf(f *testing.F) {
	f.Add("nameserver 10.0.0.1\noptions a b\n")
	f.Fuzz(func(_ *testing.T, text string) { parseResolvConf(text) })
}

// BenchmarkAddDel is one address given and taken back, as the agent does it.
func BenchmarkAddDel(b *testing.B) {
	a := New(Config{DataDir: b.TempDir(), CallerKnows: true})
	conf := section(`{"type":"host-local","subnet":"10.1.0.0/16"}`)
	for b.Loop() {
		r, err := a.Add(context.Background(), req(conf, "c1"))
		if err != nil {
			b.Fatal(err)
		}
		q := req(conf, "c1")
		q.Held = []netip.Addr{r.IPs[0].Address.Addr()}
		if err := a.Del(context.Background(), q); err != nil {
			b.Fatal(err)
		}
	}
}
