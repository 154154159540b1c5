// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// TestServer is everything that can be seen at one real API server; each part has objects of its own.
func TestServer(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "10.244.1.0/24", "192.168.0.1")
	w.node("n2", "10.244.2.0/24", "192.168.0.2")
	for name, part := range map[string]func(*testing.T, world){
		"facts": facted, "lookups": lookups, "annotations": annotations, "events": events, "objects": objectsAt,
		"resumption": resumption,
		"token":      token, "devices": devices, "policies": policies, "calico": calicoKinds, "reviews": reviews,
	} {
		t.Run(name, func(t *testing.T) {
			defer w.Refuse(nil)
			part(t, w)
		})
	}
	t.Run("kind", func(t *testing.T) { // goes by a network of facted
		defer w.Refuse(nil)
		kindGone(t, w)
	})
	t.Run("away", func(t *testing.T) { away(t, w) }) // the last: it stops the server
}

func facted(t *testing.T, w world) {
	w.pod(t, "facts-mine", "n1", object{"a": "b", "kubectl.kubernetes.io/last-applied-configuration": "long"})
	w.pod(t, "facts-other", "n2", nil)
	w.Do("POST", "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions", object{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": object{"name": "facts-net"},
		"spec": object{"config": "{}"},
	})
	v := start(t, w.config(t, "n1"))
	v.untilPod("facts-mine")
	v.until("the network", func(c *model.Cluster) bool { return len(c.Networks) == 1 })
	c := v.facts.Cluster()
	want := []model.Node{
		{
			Name: "n1", Addrs: addrs("192.168.0.1"), PodCIDRs: cidrs("10.244.1.0/24"), Labels: map[string]string{"zone": "a"},
			Annotations: map[string]string{"weft.dev/a": "b"},
		},
		{
			Name: "n2", Addrs: addrs("192.168.0.2"), PodCIDRs: cidrs("10.244.2.0/24"), Labels: map[string]string{"zone": "a"},
		},
	}
	if d := cmp.Diff(want, c.Nodes, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); d != "" {
		t.Error(d)
	}
	for _, p := range c.Pods {
		if p.Node != "n1" {
			t.Errorf("pod of another node: %+v", p)
		}
		if p.Name == "facts-mine" && (len(p.Annotations) != 1 || p.Annotations["a"] != "b") {
			t.Errorf("annotations %v", p.Annotations)
		}
	}
	if n := c.Networks[0]; n.String() != "default/facts-net" || n.Config != "{}" {
		t.Errorf("network %+v", n)
	}
	// A heartbeat is no news.
	changed, cancel := v.facts.Subscribe()
	defer cancel()
	for len(changed) > 0 {
		<-changed
	}
	w.Do("PATCH", "/api/v1/nodes/n2/status", object{
		"status": object{
			"conditions": []object{{"type": "Ready", "status": "True", "lastHeartbeatTime": "2030-01-01T00:00:00Z"}},
		},
	})
	w.pod(t, "facts-later", "n1", nil)
	v.untilPod("facts-later")
	w.Do("DELETE", "/api/v1/namespaces/default/pods/facts-later?gracePeriodSeconds=0", nil)
	v.until("the pod gone", func(c *model.Cluster) bool {
		for _, p := range c.Pods {
			if p.Name == "facts-later" {
				return false
			}
		}
		return true
	})
}

func addrs(s string) []netip.Addr   { return []netip.Addr{netip.MustParseAddr(s)} }
func cidrs(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }

func lookups(t *testing.T, w world) {
	ctx := context.Background()
	v := start(t, w.config(t, "n1"))
	v.synced()
	uid := w.pod(t, "lookup", "n1", object{"a": "b", "kubernetes.io/config.hash": "0123"})
	v.untilPod("lookup")
	w.Reset()
	for _, id := range []string{"", uid, "0123"} { // a static pod is known to the kubelet by the last
		p, err := v.Pod(ctx, model.PodRef{Namespace: "default", Name: "lookup", UID: id})
		if err != nil || p.UID != uid || p.Annotations["a"] != "b" {
			t.Errorf("known pod with uid %q: %+v %v", id, p, err)
		}
	}
	if seen := ofLookups(w); len(seen) != 0 {
		t.Errorf("requests for a known pod: %v", seen)
	}
	_, err := v.Pod(ctx, model.PodRef{Namespace: "default", Name: "lookup", UID: "another"})
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another pod of that name: %v", err)
	}
	w.Reset()
	other := w.pod(t, "lookup-unknown", "n2", nil) // never on this node's shelf
	if p, err := v.Pod(ctx, model.PodRef{Namespace: "default", Name: "lookup-unknown", UID: other}); err != nil ||
		p.UID != other {
		t.Errorf("unknown pod: %+v %v", p, err)
	}
	if seen := ofLookups(w); len(seen) != 1 {
		t.Errorf("requests for an unknown pod: %v", seen)
	}
	_, err = v.Network(ctx, "default", "lookup-none")
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("network that is not there: %v", err)
	}
	w.Reset()
	w.Refuse(func(*http.Request) int { return http.StatusServiceUnavailable })
	_, err = v.Pod(ctx, model.PodRef{Namespace: "default", Name: "lookup-nobody"})
	var fault *model.Error
	if !errors.As(err, &fault) || fault.Code != model.CodeTryAgain ||
		!strings.Contains(err.Error(), "Pod default/lookup-nobody is not cached") {
		t.Errorf("server that refuses: %v", err)
	}
	if seen := ofLookups(w); len(seen) != 1 {
		t.Errorf("requests to a server that refuses: %v", seen)
	}
	w.Refuse(func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/lookup-nobody") {
			<-r.Context().Done()
		}
		return 0
	})
	if _, err = v.Pod(ctx, model.PodRef{Namespace: "default", Name: "lookup-nobody"}); !errors.As(err, &fault) ||
		fault.Code != model.CodeTryAgain {
		t.Errorf("server that hangs: %v", err)
	}
}

// ofLookups are the requests that are no watches.
func ofLookups(w world) (out []string) {
	for _, r := range w.Seen() {
		if r.Query.Get("watch") == "" {
			out = append(out, r.Method+" "+r.Path)
		}
	}
	return out
}

func annotations(t *testing.T, w world) {
	ctx := context.Background()
	v := start(t, w.config(t, "n1"))
	uid := w.pod(t, "annotated", "n1", object{"keep": "k", "old": "o"})
	v.untilPod("annotated")
	ref := model.PodRef{Namespace: "default", Name: "annotated", UID: uid}
	_ = v.Annotate(ctx, ref, map[string]string{"new": "n", "old": ""})
	want := map[string]string{"keep": "k", "new": "n"}
	eventually(t, "annotations", func() bool { return cmp.Equal(want, podAnnotations(t, w, "annotated")) })
	// Two conflicts, then a server that is away for a while; meanwhile more is to be written.
	var refused atomic.Int32
	w.Refuse(func(r *http.Request) int {
		if r.Method != http.MethodPatch {
			return 0
		}
		return []int{
			http.StatusConflict, http.StatusConflict, http.StatusServiceUnavailable, http.StatusInternalServerError, 0,
		}[min(refused.Add(1)-1, 4)]
	})
	_ = v.Annotate(ctx, ref, map[string]string{"third": "2"})
	eventually(t, "an attempt", func() bool { return refused.Load() > 0 })
	for i := range 100 {
		_ = v.Annotate(ctx, ref, map[string]string{"third": fmt.Sprint(i), "keep": ""})
	}
	want = map[string]string{"new": "n", "third": "99"}
	eventually(t, "annotations after conflicts", func() bool { return cmp.Equal(want, podAnnotations(t, w, "annotated")) })
	if n := refused.Load(); n < 5 || n > 8 {
		t.Errorf("%d attempts", n)
	}
	w.Refuse(nil)
	for _, gone := range []model.PodRef{
		{Namespace: "default", Name: "annotated-none", UID: "1"}, {Namespace: "default", Name: "annotated", UID: "1"},
	} {
		_ = v.Annotate(ctx, gone, map[string]string{"wrong": "w"})
	}
	_ = v.Annotate(ctx, ref, map[string]string{"no such/name/": "x"})               // is refused, and holds up nothing
	w.pod(t, "annotated-static", "n2", object{"kubernetes.io/config.hash": "4567"}) // not on the shelf
	_ = v.Annotate(ctx, model.PodRef{Namespace: "default", Name: "annotated-static", UID: "4567"}, map[string]string{
		"s": "t",
	})
	eventually(t, "annotation of a static pod", func() bool {
		return podAnnotations(t, w, "annotated-static")["s"] == "t"
	})
	other := w.pod(t, "annotated-other", "n1", nil)
	_ = v.Annotate(ctx, model.PodRef{Namespace: "default", Name: "annotated-other", UID: other}, map[string]string{
		"a": "b",
	})
	eventually(t, "annotation behind others", func() bool { return podAnnotations(t, w, "annotated-other")["a"] == "b" })
	if podAnnotations(t, w, "annotated")["wrong"] != "" {
		t.Error("another pod was annotated")
	}
}

func podAnnotations(t *testing.T, w world, name string) map[string]string {
	t.Helper()
	var p struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal(w.Do("GET", "/api/v1/namespaces/default/pods/"+name, nil), &p); err != nil {
		t.Fatal(err)
	}
	return p.Metadata.Annotations
}

func events(t *testing.T, w world) {
	ctx := context.Background()
	v := start(t, w.config(t, "n1"))
	v.synced()
	ref := model.PodRef{Namespace: "default", Name: "events", UID: "e-1"}
	const repeated = 500
	w.Reset()
	for range repeated {
		_ = v.Event(ctx, ref, model.Event{Warning: true, Reason: "NoNetwork", Message: "network default/x: not there"})
	}
	_ = v.Event(ctx, ref, model.Event{Reason: "AddedInterface", Message: "Add net1"})
	type event struct {
		Type, Reason, Message string
		Count                 int
		InvolvedObject        struct{ UID string }
		Source                struct{ Component, Host string }
	}
	var list struct{ Items []event }
	eventually(t, "events", func() bool {
		list.Items = nil
		if err := json.Unmarshal(w.Do("GET", "/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid=e-1", nil),
			&list); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, e := range list.Items {
			n += e.Count
		}
		return n == repeated+1
	})
	if len(list.Items) != 2 {
		t.Errorf("%d events: %+v", len(list.Items), list.Items)
	}
	for _, e := range list.Items {
		if e.Source.Component != "weft" || e.Source.Host != "n1" || (e.Type == "Warning") != (e.Reason == "NoNetwork") {
			t.Errorf("%+v", e)
		}
	}
	if n := len(ofLookups(w)); n > 10 {
		t.Errorf("%d requests for %d events", n, repeated+1)
	}
}

// token uses the rights of deploy/base/rbac.yaml and the files of a pod's service account.
func token(t *testing.T, w world) {
	cfg := w.config(t, "n1")
	cfg.Kubeconfig, cfg.InCluster, cfg.Server, cfg.Secrets = "", true, w.Proxy.URL, t.TempDir()
	cfg.Getenv = func(string) string { return "" }
	bound := func(name string) string {
		var made struct{ Metadata struct{ UID string } }
		raw := w.Do("POST", "/api/v1/namespaces/kube-system/secrets", object{"metadata": object{"name": name}})
		if err := json.Unmarshal(raw, &made); err != nil {
			t.Fatal(err)
		}
		return w.Token("kube-system", "weft", "Secret", name, made.Metadata.UID)
	}
	ca, err := os.ReadFile(w.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string, b []byte) { // as the kubelet does: never half of it
		tmp := filepath.Join(cfg.Secrets, "."+name)
		if err := errors.Join(os.WriteFile(tmp, b, 0o600), os.Rename(tmp, filepath.Join(cfg.Secrets, name))); err != nil {
			t.Fatal(err)
		}
	}
	first, second := bound("first"), bound("second")
	put("ca.crt", ca)
	put("token", []byte(first))
	w.Reset()
	v := start(t, cfg)
	uid := w.pod(t, "token", "n1", nil)
	v.untilPod("token")
	ref := model.PodRef{Namespace: "default", Name: "token", UID: uid}
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	if err := v.Annotate(ctx, ref, map[string]string{"one": "1"}); err != nil {
		t.Error(err)
	}
	host := store.VirtualMachineInstances() // no kind of this server, which says so only to users who may get one
	if _, err := v.Objects().Get(ctx, host, host.Key("default", "db")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a machine's instance: %v", err)
	}
	for kind, want := range map[store.Kind]bool{store.Services(): true, {Version: "v1", Kind: "Secret", Resource: "secrets"}: false} {
		if may, err := store.MayWatch(ctx, v.Objects(), kind); err != nil || may != want {
			t.Errorf("watch of %s: %t, %v", kind.Resource, may, err)
		}
	}
	_ = v.Event(ctx, ref, model.Event{Reason: "Tested", Message: "m"})
	eventually(t, "an event", func() bool {
		return strings.Contains(
			string(w.Do("GET", "/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid="+uid, nil)), "Tested",
		)
	})
	put("token", []byte(second))
	w.Do("DELETE", "/api/v1/namespaces/kube-system/secrets/first", nil) // the first token is void with it
	eventually(t, "the second token", func() bool {
		w.CloseConnections()
		_, _ = v.Pod(ctx, model.PodRef{Namespace: "default", Name: "token-none"})
		for _, r := range w.Seen() {
			if r.Token == second && r.Code < 300 {
				return true
			}
		}
		return false
	})
	w.pod(t, "token-later", "n1", nil)
	v.untilPod("token-later")
	for _, r := range w.Seen() {
		if r.Code == http.StatusForbidden {
			t.Errorf("not allowed: %s %s", r.Method, r.Path)
		}
	}
	v.end()
	tokenless(t, cfg.Dir, first, second)
}

// tokenless looks for tokens in what the store wrote.
func tokenless(t *testing.T, dir string, tokens ...string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		for _, token := range tokens {
			if strings.Contains(string(b), token) || strings.Contains(string(b), strings.Split(token, ".")[2]) {
				t.Errorf("a token in %s", path)
			}
		}
		return err
	})
	if err != nil || files != 5 {
		t.Errorf("%d files, %v", files, err)
	}
}

func away(t *testing.T, w world) {
	cfg := w.config(t, "n1")
	ctx := context.Background()
	v := start(t, cfg)
	uid := w.pod(t, "away", "n1", object{"a": "b"})
	v.untilPod("away")
	ref := model.PodRef{Namespace: "default", Name: "away", UID: uid}
	before := v.facts.Cluster()
	v.end()
	w.Server.Stop()
	w.CloseConnections()
	// An agent that starts now knows the objects of the one before it.
	v = start(t, cfg)
	if p, err := v.Pod(ctx, ref); err != nil || p.Annotations["a"] != "b" {
		t.Errorf("known pod: %+v %v", p, err)
	}
	v.synced()
	if d := cmp.Diff(before, v.facts.Cluster(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
		cmpopts.EquateEmpty()); d != "" {
		t.Errorf("facts (-before +now):\n%s", d)
	}
	var fault *model.Error
	if _, err := v.Pod(ctx, model.PodRef{Namespace: "default", Name: "away-none"}); !errors.As(err, &fault) ||
		fault.Code != model.CodeTryAgain {
		t.Errorf("unknown pod: %v", err)
	}
	_ = v.Annotate(ctx, ref, map[string]string{"written": "w"})
	v.end()
	v = start(t, cfg) // what was to be written is not forgotten
	_ = v.Event(ctx, ref, model.Event{Reason: "While", Message: "away"})
	w.Restart()
	w.pod(t, "away-later", "n1", nil)
	v.untilPod("away-later")
	eventually(t, "the annotation", func() bool { return podAnnotations(t, w, "away")["written"] == "w" })
	eventually(t, "the event", func() bool {
		return strings.Contains(
			string(w.Do("GET", "/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid="+uid, nil)), "While",
		)
	})
}
