// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// long bounds every wait.
const long = time.Minute

var loopback = netip.MustParseAddr("127.0.0.1")

// world is an API server, with weft's and Multus' kinds and the rights of an agent.
type world struct {
	*apitest.Server
	*apitest.Proxy
}

func newWorld(t *testing.T) world {
	t.Helper()
	srv := apitest.Start(t, nil, loopback)
	w := world{srv, srv.Proxy()}
	for _, file := range []string{"nad-crd.yaml", "base/rbac.yaml"} {
		w.apply(t, filepath.Join("../../../../deploy", file))
	}
	crds, _ := filepath.Glob("../../../../deploy/crds/*.yaml")
	for _, file := range crds {
		if strings.Contains(file, "weft") || strings.Contains(file, "address") || strings.Contains(file, "endpoints") {
			w.apply(t, file)
		}
	}
	return w
}

// apply makes the objects of a file.
func (w world) apply(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	collections := map[string]string{
		"ServiceAccount":     "/api/v1/namespaces/kube-system/serviceaccounts",
		"ClusterRole":        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		"ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	}
	for doc := range strings.SplitSeq(string(b), "\n---\n") {
		var o struct{ Kind string }
		raw, err := yaml.YAMLToJSON([]byte(doc))
		if err == nil {
			err = json.Unmarshal(raw, &o)
		}
		if err != nil {
			t.Fatal(err)
		}
		if o.Kind == "CustomResourceDefinition" {
			w.DefineKind([]byte(doc))
		} else if collections[o.Kind] != "" {
			w.Do("POST", collections[o.Kind], string(raw))
		}
	}
}

type object = map[string]any

func (w world) node(name, cidr, addr string) {
	w.Do("POST", "/api/v1/nodes", object{
		"metadata": object{
			"name": name, "labels": object{
				"zone": "a",
			}, "annotations": object{"csi.volume.kubernetes.io/nodeid": "x", "weft.dev/a": "b"},
		},
		"spec": object{"podCIDR": cidr, "podCIDRs": []string{cidr}},
	})
	w.Do("PATCH", "/api/v1/nodes/"+name+"/status", object{
		"status": object{
			"addresses": []object{{"type": "InternalIP", "address": addr}, {"type": "Hostname", "address": name}},
		},
	})
}

// pod makes a pod that is bound to a node, and returns its UID.
func (w world) pod(t *testing.T, name, node string, annotations object) string {
	t.Helper()
	var made struct{ Metadata struct{ UID string } }
	raw := w.Do("POST", "/api/v1/namespaces/default/pods", object{
		"metadata": object{"name": name, "annotations": annotations},
		"spec":     object{"nodeName": node, "containers": []object{{"name": "c", "image": "i"}}},
	})
	if err := json.Unmarshal(raw, &made); err != nil {
		t.Fatal(err)
	}
	return made.Metadata.UID
}

func (w world) config(t *testing.T, node string) kube.Config {
	return kube.Config{
		Access: kube.Access{Kubeconfig: w.Kubeconfig(w.Proxy.URL, "")}, Node: node,
		Dir: filepath.Join(t.TempDir(), "cluster"), Agent: "weft/test",
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: time.Now, After: time.After,
	}
}

// view is a running store and the facts that are made of it.
type view struct {
	*kube.Store
	facts *facts.Facts
	t     *testing.T
	end   func()
}

// start runs a store until the test ends, or end is called.
func start(t *testing.T, cfg kube.Config) view {
	t.Helper()
	s, err := kube.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	v := view{Store: s, facts: facts.New(s, cfg.Node, cfg.Log, time.After), t: t}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	go func() { _ = s.Run(ctx); done <- struct{}{} }()
	go func() { _ = v.facts.Run(ctx); done <- struct{}{} }()
	ended := false
	v.end = func() {
		cancel()
		if !ended {
			<-done
			<-done
		}
		ended = true
	}
	t.Cleanup(v.end)
	return v
}

// until waits until the facts are as wanted.
func (v view) until(what string, ok func(*model.Cluster) bool) {
	v.t.Helper()
	changed, cancel := v.facts.Subscribe()
	defer cancel()
	limit := time.After(long)
	for {
		if c := v.facts.Cluster(); c != nil && ok(c) {
			return
		}
		select {
		case <-changed:
		case <-limit:
			v.t.Fatalf("%s: not within %s; facts: %+v", what, long, v.facts.Cluster())
		}
	}
}

func (v view) synced() {
	v.t.Helper()
	v.until("first facts", func(*model.Cluster) bool { return true })
}

func (v view) untilPod(name string) {
	v.t.Helper()
	v.until("pod "+name, func(c *model.Cluster) bool {
		for _, p := range c.Pods {
			if p.Name == name {
				return true
			}
		}
		return false
	})
}

// eventually waits for anything else.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for limit := time.Now().Add(long); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%s: not within %s", what, long)
		}
	}
}
