// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/weft-net/weft/internal/nettest"
)

// defined creates the kinds of a directory of definitions, and waits until they are served.
func (k *kubeWorld) defined(pattern string) {
	k.t.Helper()
	files, _ := filepath.Glob(pattern)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			k.t.Fatal(err)
		}
		k.DefineKind(text)
	}
}

// TestPartition: two agents allocate addresses of one range through a real API server, which is down for a while;
// before and after that one node alone is disconnected, and one agent is killed meanwhile.
func TestPartition(t *testing.T) {
	nettest.EndToEnd(t)
	k := newKubeWorld(t, 2)
	k.defined("../../../deploy/crds/weft.dev_*.yaml")
	cut := k.Server.Proxy()
	k.nodes[1].args = []string{"--node", "n2", "--kubeconfig", k.Kubeconfig(cut.URL, "")}
	var lists []*libcni.NetworkConfigList
	for _, w := range k.nodes {
		w.start()
		lists = append(lists, w.list("1.0.0", shared))
	}
	var mu sync.Mutex
	given, failed := map[string]string{}, 0
	add := func(i int, id string, patient bool) {
		ns := nettest.NS(t, "pod")
		r, err := k.nodes[i].add(lists[i], id, ns)
		for end := time.Now().Add(time.Minute); patient && code(err) == 11 && time.Now().Before(end); {
			time.Sleep(100 * time.Millisecond)
			r, err = k.nodes[i].add(lists[i], id, ns)
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed++
			if code(err) != 11 {
				t.Errorf("%s on node %d: %v", id, i+1, err)
			}
			return
		}
		a, who := r.IPs[0].Address.IP.String(), fmt.Sprint(id, " on node ", i+1)
		if other, twice := given[a]; twice {
			t.Errorf("%s has the address %s of %s", who, a, other)
		}
		given[a] = who
	}
	round := func(name string, n int, patient bool) {
		t.Helper()
		before, bad := len(given), failed
		var wait sync.WaitGroup
		for i := range k.nodes {
			wait.Go(func() {
				for j := range n {
					add(i, strings.NewReplacer(" ", "-", ",", "").Replace(fmt.Sprint(name, j)), patient)
				}
			})
		}
		wait.Wait()
		t.Logf("%s: %d given, %d refused for now", name, len(given)-before, failed-bad)
	}
	const patient = true // a runtime that tries again: the server of a busy host may not answer in three seconds
	round("together", 8, patient)
	if failed > 0 {
		t.Errorf("%d of the first were refused: %s", failed, k.nodes[0].log())
	}
	refuse := func(*http.Request) int { return http.StatusServiceUnavailable }
	cut.Refuse(refuse)
	cut.CloseConnections()
	round("one cut off", 6, false)
	k.Server.Stop()
	k.Proxy.CloseConnections()
	round("no server", 6, false)
	for i, w := range k.nodes { // a free address is allocated again, by its own node
		for j := range 3 {
			id := fmt.Sprint("together", j)
			if err := w.del(lists[i], id, nettest.NS(t, "gone")); err != nil {
				t.Errorf("DEL without the server: %v", err)
			}
			for a, who := range given {
				if who == fmt.Sprint(id, " on node ", i+1) {
					delete(given, a)
				}
			}
		}
	}
	k.nodes[0].kill()
	k.nodes[0].start()
	before := len(given)
	round("no server, one killed", 4, false)
	if len(given)-before < 4 { // six were free, two of them perhaps not yet when they were asked for
		t.Errorf("%d addresses of those that are free again: %s", len(given)-before, k.nodes[0].log())
	}
	k.Server.Restart()
	round("one still cut off", 4, false)
	cut.Refuse(nil)
	cut.CloseConnections()
	before = len(given)
	round("together again", 8, patient)
	if len(given) != before+16 {
		t.Errorf("%d addresses when all is well again, want 16: %s\n%s", len(given)-before, k.nodes[0].log(),
			k.nodes[1].log())
	}
}
