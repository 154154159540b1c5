// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/release"
)

// world is a cluster with an API server and nothing else: nothing starts pods.
type world struct {
	*apitest.Server
	t      *testing.T
	target release.Target
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Server: apitest.Start(t, nil, netip.MustParseAddr("127.0.0.1")), t: t}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], "+
		"clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}], users: [{name: u, user: {token: admin}}]}",
		w.URL, w.CAFile)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.target = release.Target{Kubeconfig: path, Version: "v1.2.3", Log: slog.New(slog.DiscardHandler)}
	return w
}

func (w *world) open() *release.Cluster {
	w.t.Helper()
	c, err := release.Open(w.target)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// get reads an object.
func (w *world) get(path string, into any) {
	w.t.Helper()
	if err := json.Unmarshal(w.Do(http.MethodGet, path, nil), into); err != nil {
		w.t.Fatal(err)
	}
}

const (
	daemonSet = "/apis/apps/v1/namespaces/kube-system/daemonsets/weft"
	configMap = "/api/v1/namespaces/kube-system/configmaps/weft"
)

type agentSet struct {
	Metadata struct{ Annotations map[string]string }
	Spec     struct {
		Template struct {
			Spec struct{ Containers []struct{ Image string } }
		}
	}
}

type values = map[string]any

// An installation, an upgrade that keeps values, a change that is only tried, and the removal.
func TestRelease(t *testing.T) {
	w := newWorld(t)
	c := w.open()
	if s, err := c.Status(t.Context()); err != nil || s.Installed || s.Rollout.Complete() {
		t.Errorf("before: %+v, %v", s, err)
	}
	if _, err := c.Apply(t.Context(), release.Options{Upgrade: true}); !has(err, "weft is not installed by it") {
		t.Errorf("upgrade of nothing: %v", err)
	}
	tried, err := c.Apply(t.Context(), release.Options{Install: true, DryRun: true, Values: values{"mode": "multus"}})
	if err != nil || !strings.Contains(tried.Manifest, "mode: multus") {
		t.Errorf("dry run: %v, %.200s", err, tried.Manifest)
	}
	if s, _ := c.Status(t.Context()); s.Installed || s.Rollout.Workloads[0].Pending != "there is no DaemonSet" {
		t.Errorf("a dry run installed: %+v", s)
	}
	first, err := c.Apply(t.Context(), release.Options{Install: true, Values: values{"image": values{"repository": "example.org/weft"}}})
	if err != nil || first.Revision != 1 {
		t.Fatalf("install: %+v, %v", first, err)
	}
	var d agentSet
	w.get(daemonSet, &d)
	if image := d.Spec.Template.Spec.Containers[0].Image; image != "example.org/weft:v1.2.3" {
		t.Errorf("the image is %s", image)
	}
	var kinds struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	w.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &kinds)
	if len(kinds.Items) != 8 {
		t.Errorf("%d kinds: %+v", len(kinds.Items), kinds)
	}
	if _, err := c.Apply(t.Context(), release.Options{Install: true}); !has(err, "weft is installed already (revision 1)") {
		t.Errorf("twice: %v", err)
	}
	second, err := c.Apply(t.Context(), release.Options{Upgrade: true, Values: values{"config": values{"logLevel": "debug"}}})
	if err != nil || second.Revision != 2 {
		t.Fatalf("upgrade: %+v, %v", second, err)
	}
	w.get(daemonSet, &d)
	var cm struct{ Data map[string]string }
	w.get(configMap, &cm)
	if d.Spec.Template.Spec.Containers[0].Image != "example.org/weft:v1.2.3" || !strings.Contains(cm.Data["weft.yaml"], "logLevel: debug") {
		t.Errorf("after the upgrade: %+v, %s", d, cm.Data["weft.yaml"])
	}
	s, err := c.Status(t.Context())
	if err != nil || s.Revision != 2 || s.State != "deployed" || s.Version != "v1.2.3" || s.Values["image"] == nil {
		t.Errorf("status: %+v, %v", s, err)
	}
	// No controller of Kubernetes runs here: the wait ends with what it waits for.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	messages := 0
	err = c.Wait(ctx, func(release.Rollout) { messages++ })
	if !errors.Is(err, context.DeadlineExceeded) || messages != 1 || !has(err, "weft: Kubernetes has not seen the change yet") {
		t.Errorf("wait: %v, %d messages", err, messages)
	}
	if err := c.Uninstall(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s, _ := c.Status(t.Context()); s.Installed || s.Rollout.Workloads[1].Pending != "there is no Deployment" {
		t.Errorf("after the removal: %+v", s)
	}
	w.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &kinds)
	if len(kinds.Items) != 8 {
		t.Errorf("the removal deleted kinds: %+v", kinds)
	}
	if err := c.Uninstall(t.Context()); !has(err, "weft is not installed by it") {
		t.Errorf("a second removal: %v", err)
	}
	again, err := c.Apply(t.Context(), release.Options{Install: true})
	if err != nil {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// What kubectl applied becomes the release's. A process that was killed is no obstacle once its lock has ended; one that
// runs is.
func TestObstacles(t *testing.T) {
	w := newWorld(t)
	w.Do(http.MethodPost, "/api/v1/namespaces/kube-system/configmaps", json.RawMessage(
		`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "weft"}, "data": {"weft.yaml": "network: {}", "more": "x"}}`))
	lease := func(at time.Time) {
		w.Do(http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", json.RawMessage(fmt.Sprintf(
			`{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "weft-cluster"},
			"spec": {"holderIdentity": "process 7 on another-host", "leaseDurationSeconds": 30, "renewTime": %q}}`,
			at.UTC().Format("2006-01-02T15:04:05.000000Z"))))
	}
	lease(time.Now())
	c := w.open()
	_, err := c.Apply(t.Context(), release.Options{Install: true})
	var busy *model.Error
	if !errors.As(err, &busy) || busy.Code != model.CodeTryAgain || !has(err, "process 7 on another-host") {
		t.Fatalf("two at once: %v", err)
	}
	w.Do(http.MethodDelete, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/weft-cluster", nil)
	lease(time.Now().Add(-time.Hour)) // of a process that was killed
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Apply(ctx, release.Options{Install: true}); err == nil {
		t.Fatal("an interrupted installation reports success")
	}
	if r, err := c.Apply(t.Context(), release.Options{Install: true}); err != nil {
		t.Fatalf("after the interruption: %+v, %v", r, err)
	}
	var cm struct{ Data map[string]string }
	w.get(configMap, &cm)
	if !strings.Contains(cm.Data["weft.yaml"], "mode: cluster") {
		t.Errorf("the ConfigMap of kubectl was not adopted: %+v", cm.Data)
	}
	var leases struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	w.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", &leases)
	for _, l := range leases.Items {
		if l.Metadata.Name == "weft-cluster" {
			t.Error("the lock is left")
		}
	}
}

func has(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }
