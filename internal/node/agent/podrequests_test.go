// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/nettest"
)

// resourceOf returns the resource of a request's path, with a subresource.
func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "api" {
		parts = parts[2:]
	} else {
		parts = parts[min(3, len(parts)):]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		return parts[0] + "/" + parts[2]
	}
	return parts[0]
}

// TestRequestsPerPod counts an agent's requests to the API server for pods with addresses of the cluster's pools: those
// of each pod, and those for blocks, of which one is claimed for sixteen pods.
func TestRequestsPerPod(t *testing.T) {
	nettest.EndToEnd(t)
	k := newKubeWorld(t, 1)
	k.defined("../../../deploy/crds/weft.dev_*.yaml")
	w := k.nodes[0]
	w.args = append(w.args, "--config", w.path("weft.yaml"))
	w.configure("pools: [{cidr: 10.77.0.0/22, blockSize: 28, encapsulation: none}]")
	w.start()
	list := w.ownList()
	const pods = 40
	name := func(i int) string { return fmt.Sprint("pod", i) }
	var uids []string
	for i := range pods {
		uids = append(uids, k.pod(name(i), 1))
	}
	for i := range pods {
		k.known(1, name(i))
	}
	asked := func() map[string]int {
		count := map[string]int{}
		for _, r := range k.Seen() {
			if !r.Query.Has("watch") {
				count[r.Method+" "+resourceOf(r.Path)]++
			}
		}
		return count
	}
	quiet := func() map[string]int {
		t.Helper()
		last, since := asked(), time.Now()
		k.until("no more requests", func() bool {
			if now := asked(); !maps.Equal(now, last) {
				last, since = now, time.Now()
			}
			return time.Since(since) > 3*time.Second
		})
		return last
	}
	// The start of an agent lists what its watches keep current from then on. It ends with the first claimed block.
	k.until("the first block", func() bool { return asked()["POST addressblocks"] > 0 })
	quiet()
	k.Reset()
	for i := range pods {
		p := k.sandbox(name(i), uids[i], 1)
		p.list = list
		if err := p.add(); err != nil {
			t.Fatalf("%v\n%s", err, w.log())
		}
	}
	for i := range pods {
		k.until("the status of "+name(i), func() bool { return k.status(name(i)) != "" })
	}
	last := quiet()
	sum := 0
	for _, kind := range slices.Sorted(maps.Keys(last)) {
		t.Logf("%.2f %s per pod", float64(last[kind])/pods, kind)
		sum += last[kind]
	}
	t.Logf("%.2f requests per pod", float64(sum)/pods)
	if sum > 3*pods {
		t.Errorf("%d requests for %d pods: %v", sum, pods, slices.Collect(maps.Keys(last)))
	}
	if i := slices.IndexFunc(k.Seen(), func(r apitest.Request) bool {
		return r.Method == "GET" && strings.HasSuffix(r.Path, "/addressblocks") && !r.Query.Has("watch")
	}); i >= 0 {
		t.Errorf("the blocks of all nodes were listed: %s", k.Seen()[i].Path)
	}
}
