// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// kubernetes is a real API server that knows weft's kinds.
func kubernetes(t *testing.T) *apitest.Server {
	s := apitest.Start(t, nil, netip.MustParseAddr("127.0.0.1"))
	for _, name := range []string{"addresspools", "addressblocks", "addressclaims"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "crds", "weft.dev_"+name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		s.DefineKind(text)
	}
	return s
}

func over(t *testing.T, s *apitest.Server, url, name string) *kube.Store {
	t.Helper()
	k, err := kube.Open(kube.Config{
		Access: kube.Access{Kubeconfig: s.Kubeconfig(url, ""), Getenv: os.Getenv}, Node: name, Agent: "weft-test",
		Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestOnKubernetes: two nodes share a range on a real API server, which is stopped for a while; one node is killed
// meanwhile.
func TestOnKubernetes(t *testing.T) {
	nettest.EndToEnd(t)
	s := kubernetes(t)
	_, path := cluster(t, nil)
	var nodes []*node
	var proxies []*apitest.Proxy
	for _, name := range []string{"a", "b"} {
		proxy := s.Proxy()
		proxies = append(proxies, proxy)
		nodes = append(nodes, join(t, path, name, func(c *Config) {
			c.Objects, c.Cooldown, c.Idle = over(t, s, proxy.URL, name).Objects(), 50*time.Millisecond, 300*time.Millisecond
		}))
	}
	a, b := nodes[0], nodes[1]
	a.run()
	stopB := b.run()
	conf := rangeConf1("10.0.0.0/25")
	ids := func(prefix string, n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprint(prefix, i))
		}
		return out
	}
	var both sync.WaitGroup
	for _, n := range nodes {
		both.Go(func() {
			for _, id := range ids(n.name, 40) {
				_, err := n.add(conf, id)
				for end := time.Now().Add(time.Minute); errors.Is(err, store.ErrNoAnswer) && time.Now().Before(end); {
					_, err = n.add(conf, id)
				}
				if err != nil {
					t.Errorf("node %s: %v", n.name, err)
				}
			}
		})
	}
	both.Wait()
	checkOnce(t, a, b)
	uncut(t, a.config.Objects)

	// What a has to spare, b gets: whole blocks, and single addresses of others.
	for i, id := range ids("a", 40) {
		if i%2 == 0 {
			a.del(id)
		}
	}
	again := func(n *node, id string) {
		t.Helper()
		var err error
		for limit := time.Now().Add(5 * time.Minute); time.Now().Before(limit); {
			// as a runtime does: a handful of requests a second go to the server
			if _, err = n.add(conf, id); err == nil {
				return
			}
		}
		t.Fatalf("node %s: %v", n.name, err)
	}
	for _, id := range ids("more", 126-60) {
		again(b, id)
	}
	if _, err := b.add(conf, "one too many"); err == nil {
		t.Error("126 addresses are 127")
	}
	checkOnce(t, a, b)
	for _, id := range ids("more", 126-60) {
		b.del(id)
	}

	// Without the server: from memory, without a request, also after a kill.
	eventually(t, "b has a spare block", func() bool {
		b.engine.state.mu.Lock()
		defer b.engine.state.mu.Unlock()
		p := b.engine.state.pools["whereabouts"]
		return !p.exhausted() && p.hasFree(poolconf.Want{Spans: []addrspan.Span{addrspan.Usable(netip.MustParsePrefix("10.0.0.0/25"))}}, time.Now(), nil, 2)
	})
	stopB() // or it could release a block that is idle now
	s.Stop()
	proxies[1].Reset()
	b.mustAdd(conf, "alone")
	if seen := proxies[1].Seen(); len(seen) > 0 && seen[0].Method != http.MethodGet { // a watch may knock
		t.Errorf("an ADD made the request %s %s", seen[0].Method, seen[0].Path)
	}
	b.del("alone")
	b.start()
	var err error
	for _, id := range ids("dark", 200) {
		if _, err = b.add(conf, id); err != nil {
			break
		}
	}
	var f *model.Error
	if !errors.As(err, &f) || f.Code != model.CodeTryAgain ||
		!strings.Contains(err.Error(), "the datastore does not answer") {
		t.Errorf("used up without the server: %v", err)
	}
	checkOnce(t, a, b)
	s.Restart()
	b.run()
	b.del("dark0") // it may have had all that node a left
	again(b, "light")
	checkOnce(t, a, b)
}

// uncut tries to cut a pool in another way: the server refuses.
func uncut(t *testing.T, objects store.Objects) {
	t.Helper()
	kind := store.AddressPools()
	o, err := objects.Get(context.Background(), kind, kind.Key("", "whereabouts"))
	if err != nil {
		t.Fatal(err)
	}
	pool, err := o.AddressPool()
	if err != nil {
		t.Fatal(err)
	}
	pool.Regions[0].BlockSize--
	next, err := store.AddressPoolObject(o, pool)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := objects.CompareAndSwap(context.Background(), kind, o.Version, next); err == nil ||
		!strings.Contains(err.Error(), "the blockSize of a region cannot be changed") {
		t.Errorf("another block size: %v", err)
	}
}
