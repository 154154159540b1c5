// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// liveHeap returns the bytes of reachable objects.
func liveHeap() int {
	for range 3 { // finalizers and interned texts need more than one cycle
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func nodeName(i int) string { return fmt.Sprintf("ip-172-16-%05d.eu-central-1.compute.internal", i) }

// writeSnapshot writes an agent's snapshot of a cluster.
func writeSnapshot(t *testing.T, dir string, nodes int, backend string) {
	t.Helper()
	type fields = map[string]any
	kinds := map[string][]any{"pods": {}, "namespaces": {}, "network-attachment-definitions": {}, "nodes": {}}
	for i := range nodes {
		annotations := fields{}
		if backend == "vxlan" {
			annotations = fields{
				"flannel.alpha.coreos.com/backend-type": backend,
				"flannel.alpha.coreos.com/backend-data": fmt.Sprintf(`{"VNI":1,"VtepMAC":"0a:00:00:00:%02x:%02x"}`, i>>8, i&255),
				"flannel.alpha.coreos.com/public-ip":    fmt.Sprintf("172.16.%d.%d", (i+1)>>8, (i+1)&255),
			}
		}
		kinds["nodes"] = append(kinds["nodes"], fields{
			"apiVersion": "v1", "kind": "Node",
			"metadata": fields{
				"name":        nodeName(i),
				"uid":         fmt.Sprintf("0a1b2c3d-4e5f-6071-8293-%012d", i),
				"annotations": annotations,
				"labels": fields{
					"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
					"kubernetes.io/hostname": nodeName(i), "kubernetes.io/os": "linux",
					"node.kubernetes.io/instance-type": "m5.large", "topology.kubernetes.io/region": "eu-central-1",
					"topology.kubernetes.io/zone": fmt.Sprintf("eu-central-1%c", 'a'+i%3),
				},
			},
			"spec": fields{"podCIDRs": []string{fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255)}},
			"status": fields{"addresses": []fields{
				{"type": "InternalIP", "address": fmt.Sprintf("172.16.%d.%d", (i+1)>>8, (i+1)&255)},
				{"type": "Hostname", "address": nodeName(i)},
			}},
		})
	}
	for kind, objects := range kinds {
		b, err := json.Marshal(fields{"version": 1, "node": nodeName(0), "objects": objects})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, kind+".json"), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// bytesPerNode bounds the live memory per node: 1,363 bytes with host-gw and 1,773 with vxlan were measured.
const bytesPerNode = 2000

// TestHeapPerNode: from the datastore to the kernel an agent keeps one copy of a node, and one plan.
func TestHeapPerNode(t *testing.T) {
	for _, backend := range []string{"host-gw", "vxlan"} {
		t.Run(backend, func(t *testing.T) {
			const nodes = 10_000
			ns := nettest.NS(t, "node")
			ip(t, ns, "link set lo up", "link add eth0 type veth peer name far", "link set eth0 up", "link set far up",
				"addr add 172.16.0.1/12 dev eth0")
			conn, err := kernel.Dial(ns)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			dir := t.TempDir()
			writeSnapshot(t, dir, nodes, backend)
			before := liveHeap()
			f := followSnapshot(t, dir)
			r := reconcile.New(reconcile.Config{
				Facts: f, Host: conn, NS: ns, Mesh: mesh.Config{Backend: backend}, StatusFile: filepath.Join(dir, "mesh.json"),
				Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
			})
			known := (liveHeap() - before) / nodes
			for range 2 { // the plan of the second pass replaces that of the first
				status, err := r.Once(t.Context(), f.Cluster())
				if err != nil || len(status.Topology.Peers) != nodes-1 || len(status.Topology.Problems) > 0 {
					t.Fatal(err, len(status.Topology.Peers), status.Topology.Problems)
				}
			}
			got := (liveHeap() - before) / nodes
			t.Logf("%d bytes a node, %d of them before the plan", got, known)
			if got > bytesPerNode {
				t.Errorf("%d bytes a node, want at most %d", got, bytesPerNode)
			}
			runtime.KeepAlive(r)
		})
	}
}

// followSnapshot returns the facts of an agent that starts with a snapshot while the server is unavailable.
func followSnapshot(t *testing.T, dir string) *facts.Facts {
	t.Helper()
	log, conf := slog.New(slog.DiscardHandler), filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(conf, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],"users":[{"name":"c","user":{}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := kube.Open(kube.Config{
		Access: kube.Access{Kubeconfig: conf, Getenv: os.Getenv}, Node: nodeName(0), Dir: dir, Log: log, Now: time.Now,
		After: time.After,
	})
	if err != nil {
		t.Fatal(err)
	}
	f := facts.New(s, nodeName(0), log, time.After)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(ctx) })
	running.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	<-f.Synced()
	within(t, time.Minute, "the archive replaces the snapshot", func() bool {
		_, err := os.Stat(filepath.Join(dir, "nodes.json"))
		return errors.Is(err, fs.ErrNotExist)
	})
	return f
}
