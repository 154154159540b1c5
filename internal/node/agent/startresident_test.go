// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// TestStartResident measures an agent that starts in a cluster of 10,000 nodes, which it knows from its archive: its
// resident memory at most until its first whole pass is done, and afterwards.
func TestStartResident(t *testing.T) {
	nettest.EndToEnd(t)
	const nodes, most = 10_000, 60 << 10 // KiB
	for _, backend := range []string{"host-gw", "vxlan"} {
		t.Run(backend, func(t *testing.T) {
			w := newWorld(t)
			nettest.Run(t, w.node, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "far")
			nettest.Run(t, w.node, "ip", "addr", "add", "172.16.0.2/12", "dev", "eth0")
			for _, link := range []string{"eth0", "far"} {
				nettest.Run(t, w.node, "ip", "link", "set", link, "up")
			}
			w.archiveNodes(nodes, backend)
			w.args = []string{"--node", "n1", "--kubeconfig", w.path("kubeconfig"), "--encapsulation", backend}
			w.start()
			routes := func() int { return routes(t, w) }
			if backend == "vxlan" {
				routes = func() int {
					return strings.Count(nettest.Run(t, w.node, "ip", "route", "show", "proto", "119"), " dev flannel")
				}
			}
			limit := time.Now().Add(2 * time.Minute)
			for routes() < nodes-1 {
				if time.Now().After(limit) {
					t.Fatalf("%d of %d routes after two minutes: %s", routes(), nodes-1, w.log())
				}
				time.Sleep(20 * time.Millisecond)
			}
			for seen, since := -1, time.Now(); time.Since(since) < 5*time.Second; time.Sleep(100 * time.Millisecond) {
				if now := resident(t, w, "VmHWM"); now != seen { // the rest of the pass may need more
					seen, since = now, time.Now()
				}
			}
			peak, files := resident(t, w, "VmHWM"), resident(t, w, "RssFile")
			t.Logf("%d nodes with %s: resident at most %d KiB, then %d KiB, %d KiB of it from files; %s of CPU", nodes, backend, peak,
				resident(t, w, "VmRSS"), files, spent(t, w))
			if peak > most { // only logged: another host has other page sizes
				t.Logf("LOUD: %d KiB were resident, the aim is at most %d", peak, most)
			}
		})
	}
}

// archiveNodes writes what an earlier agent knew of a cluster, and a kubeconfig of a server that cannot be reached.
func (w *world) archiveNodes(nodes int, backend string) {
	w.t.Helper()
	dir := w.path("state", "cluster")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	for _, kind := range []string{"pods", "namespaces", "network-attachment-definitions"} {
		if err := os.WriteFile(fmt.Sprintf("%s/%s.json", dir, kind), []byte(`{"version":1,"node":"n1","objects":[]}`), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := os.WriteFile(w.path("kubeconfig"), []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],"users":[{"name":"c","user":{}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}]}`), 0o600); err != nil {
		w.t.Fatal(err)
	}
	file, err := os.Create(dir + "/nodes.gz")
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	packed := gzip.NewWriter(file)
	lines := json.NewEncoder(packed)
	write := func(line fields) {
		if err := lines.Encode(line); err != nil {
			w.t.Fatal(err)
		}
	}
	write(fields{"version": 1, "node": "n1"})
	for i := 1; i <= nodes; i++ {
		name := fmt.Sprintf("ip-172-16-%05d.eu-central-1.compute.internal", i)
		if i == 1 {
			name = "n1"
		}
		annotations := fields{}
		addr := fmt.Sprintf("172.16.%d.%d", (i+1)>>8, (i+1)&255)
		if backend == "vxlan" {
			annotations = fields{
				"flannel.alpha.coreos.com/backend-type": backend, "flannel.alpha.coreos.com/public-ip": addr,
				"flannel.alpha.coreos.com/backend-data": fmt.Sprintf(`{"VNI":1,"VtepMAC":"0a:00:00:00:%02x:%02x"}`, i>>8, i&255),
			}
		}
		write(fields{"name": "/" + name, "object": fields{
			"apiVersion": "v1", "kind": "Node",
			"metadata": fields{
				"name": name, "uid": fmt.Sprintf("0a1b2c3d-4e5f-6071-8293-%012d", i), "annotations": annotations,
				"labels": fields{
					"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
					"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "node.kubernetes.io/instance-type": "m5.large",
					"topology.kubernetes.io/region": "eu-central-1", "topology.kubernetes.io/zone": fmt.Sprintf("eu-central-1%c", 'a'+i%3),
				},
			},
			"spec": fields{"podCIDRs": []string{fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255)}},
			"status": fields{"addresses": []fields{
				{"type": "InternalIP", "address": addr}, {"type": "Hostname", "address": name},
			}},
		}})
	}
	write(fields{"whole": true})
	if err := packed.Close(); err != nil {
		w.t.Fatal(err)
	}
}
