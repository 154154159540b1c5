// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

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

// An installation, an upgrade that keeps values, and a change that is only tried.
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
	if got := w.names(kinds); len(got) != ownKinds {
		t.Errorf("%d kinds: %q", len(got), got)
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
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	messages := 0
	err = c.Wait(ctx, func(release.Rollout) { messages++ })
	if !errors.Is(err, context.DeadlineExceeded) || messages != 1 || !has(err, "weft: Kubernetes has not seen the change yet") {
		t.Errorf("wait: %v, %d messages", err, messages)
	}
}

// A user without rights learns all that are missing before anything is changed.
func TestRights(t *testing.T) {
	w := newWorld(t)
	b, err := os.ReadFile(w.target.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.target.Kubeconfig, []byte(strings.Replace(string(b), "token: admin", "token: admin, as: dev", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	rbac := "/apis/rbac.authorization.k8s.io/v1/"
	w.Do(http.MethodPost, rbac+"namespaces/kube-system/roles", json.RawMessage(`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
		"metadata": {"name": "dev"}, "rules": [{"apiGroups": ["", "apps", "coordination.k8s.io"], "resources": ["*"], "verbs": ["*"]}]}`))
	w.Do(http.MethodPost, rbac+"namespaces/kube-system/rolebindings", json.RawMessage(`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
		"metadata": {"name": "dev"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "dev"},
		"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "dev"}]}`))
	// The API server's authorizer learns of a new role a moment later.
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		_, err = w.open().Apply(t.Context(), release.Options{Install: true})
		if !has(err, "secrets") || time.Now().After(until) {
			break
		}
	}
	for _, want := range []string{
		"nothing was changed", "get, list, create, patch, delete clusterroles.rbac.authorization.k8s.io;",
		"roles.rbac.authorization.k8s.io in namespace kube-system", "customresourcedefinitions.apiextensions.k8s.io", "list pods",
	} {
		if !has(err, want) {
			t.Errorf("no %q: %v", want, err)
		}
	}
	if has(err, "daemonsets") || has(err, "secrets") {
		t.Errorf("rights that the user has: %v", err)
	}
	if _, err := w.open().Uninstall(t.Context(), within(time.Second, release.UninstallOptions{})); !has(err, "rights are missing") {
		t.Errorf("a removal: %v", err)
	}
	if got := w.names(kinds); len(got) != 0 {
		t.Errorf("kinds: %q", got)
	}
}

// names lists the names of a path's objects.
func (w *world) names(path string) []string {
	w.t.Helper()
	var list struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	w.get(path, &list)
	var out []string
	for _, o := range list.Items {
		out = append(out, o.Metadata.Name)
	}
	return out
}

const (
	kinds      = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	daemonSets = "/apis/apps/v1/namespaces/kube-system/daemonsets"
	listeners  = "/apis/weft.dev/v1alpha1/flowlisteners"
)

// ownKinds is how many kinds an installation brings: weft's, and the NetworkAttachmentDefinition.
const ownKinds = 9

// within is a removal that waits so long for nodes.
func within(d time.Duration, o release.UninstallOptions) release.UninstallOptions {
	o.Wait = func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
	o.Progress = func([]release.NodeState) {}
	return o
}

// A removal replaces the agents first, and deletes nothing else while nodes do not answer: nothing starts pods here. It can
// be revoked, and continued. In the end the cluster has what it had before, what others have written included.
func TestUninstall(t *testing.T) {
	w := newWorld(t)
	before := map[string][]string{}
	paths := []string{
		kinds, daemonSets, "/apis/apps/v1/namespaces/kube-system/deployments", "/api/v1/namespaces/kube-system/configmaps",
		"/api/v1/namespaces/kube-system/secrets", "/api/v1/namespaces/kube-system/serviceaccounts",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
		"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
		"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
	}
	for _, p := range paths {
		before[p] = w.names(p)
	}
	c := w.open()
	if _, err := c.Uninstall(t.Context(), within(time.Second, release.UninstallOptions{})); !has(err, "weft is not installed by it") {
		t.Errorf("a removal of nothing: %v", err)
	}
	if _, err := c.Apply(t.Context(), release.Options{Install: true, Values: values{"image": values{"repository": "example.org/weft"}}}); err != nil {
		t.Fatal(err)
	}
	w.written(t)
	_, err := c.Uninstall(t.Context(), within(time.Second, release.UninstallOptions{}))
	if !has(err, "weft is not removed from all nodes") {
		t.Fatalf("nodes that do not answer: %v", err)
	}
	if !has(err, " example.org/weft:v1.2.3 weft-clean /usr/bin/weft-agent clean --from weft") {
		t.Errorf("no word of what to type there: %v", err)
	}
	if got := w.names(daemonSets); !slices.Equal(got, []string{"weft-clean"}) {
		t.Errorf("daemon sets of a removal: %q", got)
	}
	if got := w.names(kinds); len(got) != len(before[kinds])+9 {
		t.Errorf("kinds of a removal that is not complete: %q", got)
	}
	if s, err := c.Status(t.Context()); err != nil || !s.Leaving {
		t.Errorf("status: %+v, %v", s, err)
	}
	if _, err := c.Apply(t.Context(), release.Options{Install: true}); err != nil {
		t.Fatalf("a removal cannot be revoked: %v", err)
	}
	if got := w.names(daemonSets); !slices.Equal(got, []string{"weft"}) {
		t.Errorf("daemon sets after the removal was revoked: %q", got)
	}
	var d agentSet
	w.get(daemonSet, &d)
	if image := d.Spec.Template.Spec.Containers[0].Image; image != "example.org/weft:v1.2.3" {
		t.Errorf("a removal lost the values: %s", image)
	}
	p, err := c.Preview(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"DaemonSet kube-system/weft", "annotation weft.dev/pod-addresses of Node n1", "condition NetworkUnavailable of Node n1",
		"kind addresspools.weft.dev, with 1 objects",
	} {
		if !slices.Contains(p.Objects, want) {
			t.Errorf("the preview lacks %q: %q", want, p.Objects)
		}
	}
	if p, err = c.Preview(t.Context(), true); err != nil || !slices.Contains(p.Objects, "FlowListener n1") ||
		slices.Contains(p.Objects, "kind addresspools.weft.dev, with 1 objects") {
		t.Errorf("the preview with --keep-data: %q, %v", p.Objects, err)
	}
	done, err := c.Uninstall(t.Context(), within(time.Second, release.UninstallOptions{AbandonNodes: true, KeepData: true}))
	if err != nil || !done.Complete || len(done.Kept) != 8 {
		t.Fatalf("%+v, %v", done, err)
	}
	if got := w.names(listeners); len(got) > 0 {
		t.Errorf("listeners with --keep-data: %q", got)
	}
	if got := w.names("/apis/weft.dev/v1alpha1/addresspools"); !slices.Equal(got, []string{"pods"}) {
		t.Errorf("pools with --keep-data: %q", got)
	}
	if _, err := c.Apply(t.Context(), release.Options{Install: true}); err != nil {
		t.Fatal(err)
	}
	ended := w.agent(t, "n1")
	if done, err = c.Uninstall(t.Context(), within(time.Second, release.UninstallOptions{AbandonNodes: true})); err != nil || len(done.Kept) != 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	<-ended
	for _, p := range paths {
		// Deletions end in the background.
		for until := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			got := w.names(p)
			if slices.Equal(got, before[p]) {
				break
			}
			if time.Now().After(until) {
				t.Errorf("%s: %q, before %q", p, got, before[p])
				break
			}
		}
	}
	var n struct {
		Metadata struct{ Annotations map[string]string }
		Status   struct{ Conditions []struct{ Type string } }
	}
	w.get("/api/v1/nodes/n1", &n)
	if !maps.Equal(n.Metadata.Annotations, map[string]string{"theirs": "1"}) || len(n.Status.Conditions) != 1 || n.Status.Conditions[0].Type != "Ready" {
		t.Errorf("the node has %+v", n)
	}
}

// written writes what agents and the controller write.
func (w *world) written(t *testing.T) {
	t.Helper()
	w.Do(http.MethodPost, "/api/v1/nodes", json.RawMessage(`{"apiVersion": "v1", "kind": "Node",
		"metadata": {"name": "n1", "annotations": {"theirs": "1"}}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}`))
	c := w.client(t)
	_, err := c.CoreV1().Nodes().Patch(t.Context(), "n1", types.StrategicMergePatchType, []byte(
		`{"metadata": {"annotations": {"weft.dev/pod-addresses": "[]", "flannel.alpha.coreos.com/public-ip": "10.0.0.1"}},
		"status": {"conditions": [{"type": "NetworkUnavailable", "status": "True", "reason": "MeshFailed"}]}}`),
		metav1.PatchOptions{FieldManager: "weft"}, "status")
	if err != nil {
		t.Fatal(err)
	}
	w.Do(http.MethodPost, "/apis/weft.dev/v1alpha1/addresspools", json.RawMessage(`{"apiVersion": "weft.dev/v1alpha1", "kind": "AddressPool",
		"metadata": {"name": "pods", "finalizers": ["weft.dev/blocks"]}, "spec": {"cidr": "10.9.0.0/16", "blockSize": 26}}`))
	w.Do(http.MethodPost, listeners, json.RawMessage(`{"apiVersion": "weft.dev/v1alpha1", "kind": "FlowListener",
		"metadata": {"name": "n1"}, "spec": {"address": ":9443", "key": "`+strings.Repeat("A", 43)+`="}}`))
	w.Do(http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", json.RawMessage(
		`{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "weft-controller"}}`))
}

// agent writes an annotation of a node again and again, as its agent may, and ends when it may no more.
func (w *world) agent(t *testing.T, node string) <-chan struct{} {
	t.Helper()
	c := w.client(t, func(config *rest.Config) {
		config.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:kube-system:weft",
			Groups:   []string{"system:serviceaccounts", "system:authenticated"},
			Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {node}},
		}
	})
	ended := make(chan struct{})
	write := func() error {
		_, err := c.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, []byte(
			`{"metadata": {"annotations": {"flannel.alpha.coreos.com/public-ip": "10.0.0.1"}}}`),
			metav1.PatchOptions{FieldManager: "weft"}, "status")
		return err
	}
	err := write()
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); { // the API server hears of its rights later
		time.Sleep(50 * time.Millisecond)
		err = write()
	}
	if err != nil {
		t.Fatalf("an agent: %v", err)
	}
	go func() {
		defer close(ended)
		for write() == nil {
			time.Sleep(time.Millisecond)
		}
	}()
	return ended
}

func (w *world) client(t *testing.T, change ...func(*rest.Config)) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", w.target.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(config)
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
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

// TestDeadNode: an installation that waits for a node that died names it and what to do; a node that is not ready because
// it has no network yet is only waited for. The wait ends once the node is deleted.
func TestDeadNode(t *testing.T) {
	w := newWorld(t)
	c := w.open()
	if _, err := c.Apply(t.Context(), release.Options{Install: true}); err != nil {
		t.Fatal(err)
	}
	const pods = "/api/v1/namespaces/kube-system/pods"
	for _, n := range []string{"dead", "slow"} {
		ready := `"status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."`
		if n == "slow" {
			ready = `"status": "False", "reason": "KubeletNotReady", "message": "cni plugin not initialized"`
		}
		w.Do(http.MethodPost, "/api/v1/nodes", json.RawMessage(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Node",
			"metadata": {"name": %q}, "status": {"conditions": [{"type": "Ready", %s, "lastTransitionTime": "2030-01-02T03:04:05Z"}]}}`,
			n, ready)))
		w.Do(http.MethodPost, pods, json.RawMessage(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod",
			"metadata": {"name": "weft-%s", "labels": {"app.kubernetes.io/name": "weft"}},
			"spec": {"serviceAccountName": "weft", "nodeName": %q, "containers": [{"name": "weft", "image": "i"}]}}`, n, n)))
	}
	rolled := func(wanted, ready int) {
		t.Helper()
		for path, status := range map[string]string{
			daemonSet: fmt.Sprintf(`"desiredNumberScheduled": %d, "updatedNumberScheduled": %d, "numberReady": %d`,
				wanted, wanted, ready),
			"/apis/apps/v1/namespaces/kube-system/deployments/weft-controller": `"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1`,
		} {
			var o struct{ Metadata struct{ Generation int64 } }
			w.get(path, &o)
			w.Do(http.MethodPatch, path+"/status", json.RawMessage(fmt.Sprintf(`{"status": {"observedGeneration": %d, %s}}`,
				o.Metadata.Generation, status)))
		}
	}
	rolled(2, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := c.Wait(ctx, func(release.Rollout) {})
	for _, want := range []string{
		"weft-dead on dead: the node has not answered since 2030-01-02T03:04:05Z", "Kubelet stopped posting node status.",
		"kubectl delete node dead", "weft-slow on slow: it runs and is not ready yet",
	} {
		if !has(err, want) {
			t.Errorf("wait lacks %q: %v", want, err)
		}
	}
	if has(err, "delete node slow") {
		t.Errorf("a node that waits for its network: %v", err)
	}
	w.Do(http.MethodDelete, "/api/v1/nodes/dead", nil)
	if r, err := c.Rollout(t.Context()); err != nil || !strings.Contains(r.String(), "dead: the node does not exist any more") {
		t.Errorf("%s, %v", r, err)
	}
	rolled(1, 1)
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Wait(ctx, func(release.Rollout) {}); err != nil {
		t.Error(err)
	}
}

// TestOlderKinds: the definitions of an earlier version are replaced, and their objects stay.
func TestOlderKinds(t *testing.T) {
	w := newWorld(t)
	w.DefineKind([]byte(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: addresspools.weft.dev}
spec:
  group: weft.dev
  scope: Cluster
  names: {kind: AddressPool, listKind: AddressPoolList, plural: addresspools, singular: addresspool}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {cidr: {type: string}, blockSize: {type: integer}}}}
`))
	const pools = "/apis/weft.dev/v1alpha1/addresspools"
	w.Do(http.MethodPost, pools, json.RawMessage(`{"apiVersion": "weft.dev/v1alpha1", "kind": "AddressPool",
		"metadata": {"name": "pods"}, "spec": {"cidr": "10.9.0.0/16", "blockSize": 26}}`))
	c := w.open()
	if _, err := c.Apply(t.Context(), release.Options{Install: true}); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) { // the server follows the definition
		var d struct {
			Spec struct {
				Versions []struct{ Subresources map[string]any }
			}
		}
		w.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/addresspools.weft.dev", &d)
		if len(d.Spec.Versions) == 1 && d.Spec.Versions[0].Subresources["status"] != nil {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("the definition is %+v", d)
		}
	}
	// The server may refuse requests while it changes over, which the client repeats.
	if got, err := c.Objects(t.Context()); err != nil || got["addresspools"] != 1 {
		t.Errorf("objects: %v, %v", got, err)
	}
}

func has(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }
