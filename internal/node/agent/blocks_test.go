// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// shared is a network with addresses that are unique in the cluster: a configuration for whereabouts.
const shared = `{"type":"ptp","ipam":{"type":"whereabouts","range":"10.7.0.0/24","gateway":"10.7.0.1","exclude":["10.7.0.0/30"],"log_level":"debug",
	"kubernetes":{"kubeconfig":"/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"}}}`

// TestSharedAddresses: two nodes allocate addresses of one range at the same time. One agent is killed meanwhile, and
// the datastore is temporarily unavailable.
func TestSharedAddresses(t *testing.T) {
	nettest.EndToEnd(t)
	store := t.TempDir() + "/store"
	if err := os.Mkdir(store, 0o755); err != nil {
		t.Fatal(err)
	}
	var nodes []*world
	for i := range 2 {
		w := newWorld(t)
		w.args = []string{"--store-dir", store, "--node", fmt.Sprint("node", i)}
		w.start()
		nodes = append(nodes, w)
	}
	var mu sync.Mutex
	given := map[string]string{}
	add := func(i int, id string) error {
		w := nodes[i]
		r, err := w.add(w.list("1.0.0", shared), id, nettest.NS(t, "pod"))
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		a, who := r.IPs[0].Address.IP.String(), fmt.Sprint(id, " on node ", i)
		if other, twice := given[a]; twice {
			t.Errorf("%s has the address %s of %s", who, a, other)
		}
		given[a] = who
		return nil
	}
	var wait sync.WaitGroup
	for i := range nodes {
		wait.Go(func() {
			for n := range 12 {
				if err := add(i, fmt.Sprint("first", n)); err != nil {
					t.Errorf("ADD on node %d: %v\n%s", i, err, nodes[i].log())
				}
			}
		})
	}
	wait.Wait()
	nodes[0].kill()
	nodes[0].start()
	for i := range nodes {
		if err := add(i, "after"); err != nil {
			t.Errorf("ADD after a kill: %v\n%s", err, nodes[i].log())
		}
	}

	// The store becomes unavailable: a node allocates what it has.
	if err := os.Rename(store, store+".away"); err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		if err := add(i, "alone"); err != nil {
			t.Errorf("ADD without the store: %v\n%s", err, nodes[i].log())
		}
	}
	if err := nodes[1].del(nodes[1].list("1.0.0", shared), "alone", nettest.NS(t, "gone")); err != nil {
		t.Errorf("DEL without the store: %v", err)
	}
	if err := os.Rename(store+".away", store); err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		for n := range 20 {
			if err := add(i, fmt.Sprint("last", n)); err != nil {
				t.Errorf("ADD on node %d: %v\n%s", i, err, nodes[i].log())
			}
		}
	}
	if len(given) != 24+2+2+40 {
		t.Errorf("%d addresses were given", len(given))
	}
	nodes[0].stop()
	nodes[1].stop()
}
