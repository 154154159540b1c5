// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// TestEtcd: hosts without Kubernetes share a pool through etcd, also while it is unavailable, and report to it that
// they are alive.
func TestEtcd(t *testing.T) {
	nettest.EndToEnd(t)
	ctl := nettest.NS(t, "ctl")
	nettest.Run(t, ctl, "ip", "link", "add", "br0", "type", "bridge")
	nettest.Run(t, ctl, "ip", "addr", "add", "192.168.78.1/24", "dev", "br0")
	nettest.Run(t, ctl, "ip", "link", "set", "br0", "up")
	e := apitest.StartEtcd(t, ctl, netip.MustParseAddr("192.168.78.1"), false)
	var nodes []*world
	for i := range 2 {
		w := newWorld(t)
		up := fmt.Sprint("v", i)
		nettest.Run(t, ctl, "ip", "link", "add", up, "type", "veth", "peer", "name", "eth0", "netns", w.node.Path())
		nettest.Run(t, ctl, "ip", "link", "set", up, "master", "br0", "up")
		nettest.Run(t, w.node, "ip", "addr", "add", fmt.Sprintf("192.168.78.%d/24", 10+i), "dev", "eth0")
		nettest.Run(t, w.node, "ip", "link", "set", "eth0", "up")
		text := fmt.Sprintf("etcd: {endpoints: [%q], prefix: /hosts}\n", e.URL)
		if err := os.WriteFile(w.path("weft.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w.args = []string{"--config", w.path("weft.yaml"), "--node", fmt.Sprint("host", i)}
		w.start()
		nodes = append(nodes, w)
	}
	const conf = `{"type":"ptp","ipam":{"type":"weft","range":"10.8.0.0/22","gateway":"10.8.3.254"}}`
	given := map[string]string{}
	add := func(i int, id string) {
		t.Helper()
		w := nodes[i]
		r, err := w.add(w.list("1.0.0", conf), id, nettest.NS(t, "pod"))
		if err != nil {
			t.Fatalf("ADD on host %d: %v\n%s", i, err, w.log())
		}
		a := r.IPs[0].Address.IP.String()
		if other, twice := given[a]; twice {
			t.Errorf("host %d: %s has the address %s of %s", i, id, a, other)
		}
		given[a] = id
	}
	for i := range 2 {
		add(i, fmt.Sprint("first", i))
	}
	e.Stop()
	for i := range 2 { // of the block that it has
		add(i, fmt.Sprint("alone", i))
	}
	nodes[0].kill()
	nodes[0].start()
	add(0, "after")
	e.Restart()
	keys := func(prefix string) int {
		client := http.Client{
			Transport: &http.Transport{
				DisableKeepAlives: true,
				DialContext: func(_ context.Context, network, addr string) (c net.Conn, err error) {
					err = ctl.Do(func() error { c, err = net.Dial(network, addr); return err })
					return c, err
				},
			},
		}
		text := base64.StdEncoding.EncodeToString
		end := []byte(prefix)
		end[len(end)-1]++
		answer, err := client.Post(e.URL+"/v3/kv/range", "application/json",
			strings.NewReader(fmt.Sprintf(`{"key":%q,"range_end":%q,"count_only":true}`, text([]byte(prefix)), text(end))))
		if err != nil {
			return 0 // it has just begun
		}
		defer func() { _ = answer.Body.Close() }()
		var found struct {
			Count int `json:"count,string"`
		}
		_ = json.NewDecoder(answer.Body).Decode(&found)
		return found.Count
	}
	for limit := time.Now().Add(time.Minute); keys("/hosts/nodes/") < 2 ||
		keys("/hosts/addressblocks.weft.dev/") < 2; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%d hosts, %d blocks", keys("/hosts/nodes/"), keys("/hosts/addressblocks.weft.dev/"))
		}
	}
	for _, w := range nodes {
		w.stop()
	}
	leftRoutes(t, nodes[0])
}

// leftRoutes: an agent without routes removes the routes of an earlier agent that had them.
func leftRoutes(t *testing.T, w *world) {
	t.Helper()
	const stale = "10.99.0.0/24"
	nettest.Run(t, w.node, "ip", "route", "add", stale, "via", "192.168.78.1", "proto", "119", "metric",
		fmt.Sprint(mesh.MetricMin+1))
	if err := os.WriteFile(w.path("state", reconcile.StatusFile), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.start()
	for limit := time.Now().Add(time.Minute); nettest.Run(t, w.node, "ip", "route", "show", stale) !=
		""; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("the route is still there\n%s", w.log())
		}
	}
	w.stop()
}
