// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
)

// TestNodesOfEarlierVersion: the snapshot of an earlier version, which had the nodes in one file, is read once. Later
// starts have the nodes from the archive, and none waits for the server.
func TestNodesOfEarlierVersion(t *testing.T) {
	dir := t.TempDir()
	old, conf := filepath.Join(dir, "nodes.json"), filepath.Join(dir, "kubeconfig")
	for file, text := range map[string]string{
		old: `{"version":1,"node":"a","objects":[{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}},
{"apiVersion":"v1","kind":"Node","metadata":{"name":"b"},"spec":{"podCIDRs":["10.1.0.0/24"]}}]}`,
		filepath.Join(dir, "pods.json"):                           `{"version":1,"node":"a","objects":[]}`,
		filepath.Join(dir, "namespaces.json"):                     `{"version":1,"node":"a","objects":[]}`,
		filepath.Join(dir, "network-attachment-definitions.json"): `{"version":1,"node":"a","objects":[]}`,
		conf: `{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":
{"server":"http://127.0.0.1:1"}}],"users":[{"name":"c","user":{}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}]}`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for start := range 3 {
		s, err := Open(Config{
			Access: Access{Kubeconfig: conf, Getenv: os.Getenv}, Node: "a", Dir: dir, Log: slog.New(slog.DiscardHandler),
			Now: time.Now, After: time.After,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		events, err := s.Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		running.Go(func() { _ = s.Run(ctx) })
		var names []string
		for e := range events {
			if e.Type == store.Synced {
				break
			}
			n, err := e.Object.Node()
			if err != nil {
				t.Error(err)
			}
			if n.Name == "b" && len(n.PodCIDRs) != 1 {
				t.Errorf("start %d: %+v", start, n)
			}
			names = append(names, n.Name)
		}
		cancel()
		running.Wait() // the last save
		if slices.Sort(names); !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("start %d: nodes %v", start, names)
		}
		if _, err := os.Stat(old); err == nil {
			t.Errorf("start %d: the earlier version's file still exists", start)
		}
	}
}
