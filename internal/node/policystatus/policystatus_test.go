// SPDX-License-Identifier: Apache-2.0

package policystatus

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// TestPolicyCondition: an unsupported policy gets the condition, other conditions stay, and a policy that never was
// unsupported is not changed.
func TestPolicyCondition(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	o, err := store.NewObject(
		[]byte(
			`{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicy","metadata":{"name":"p","generation":7},
		"spec":{},"status":{"conditions":[{"type":"Theirs","status":"True"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, changed, err := withCondition(o, "", now); changed || err != nil {
		t.Error("a policy that is understood is written to", err)
	}
	bad, changed, err := withCondition(o, "spec.tier is wrong", now)
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	for _, want := range []string{
		`{"status":"True","type":"Theirs"}`, `"message":"spec.tier is wrong"`, `"observedGeneration":7`,
		`"status":"False","type":"weft.dev/Understood"`,
		`"lastTransitionTime":"2030-01-02T03:04:05Z"`,
	} {
		if !strings.Contains(string(bad.Raw), want) {
			t.Errorf("%s is missing in %s", want, bad.Raw)
		}
	}
	if _, changed, err = withCondition(bad, "spec.tier is wrong", now); changed || err != nil {
		t.Error("the same is written again", err)
	}
	// Another message is no transition; a new generation is observed.
	later := now.Add(time.Hour)
	other, changed, err := withCondition(bad, "spec.ingress is wrong", later)
	if err != nil || !changed || !strings.Contains(string(other.Raw), `"lastTransitionTime":"2030-01-02T03:04:05Z"`) {
		t.Errorf("%t %v %s", changed, err, other.Raw)
	}
	edited, err := store.NewObject([]byte(strings.Replace(string(bad.Raw), `"generation":7`, `"generation":8`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	edited, changed, err = withCondition(edited, "spec.tier is wrong", later)
	if err != nil || !changed || !strings.Contains(string(edited.Raw), `"observedGeneration":8`) ||
		!strings.Contains(string(edited.Raw), `"lastTransitionTime":"2030-01-02T03:04:05Z"`) {
		t.Errorf("%t %v %s", changed, err, edited.Raw)
	}
	if good, _, err := withCondition(bad, "", later); err != nil ||
		!strings.Contains(string(good.Raw), `"lastTransitionTime":"2030-01-02T04:04:05Z"`) {
		t.Errorf("a transition without its time: %v %s", err, good.Raw)
	}
	good, changed, err := withCondition(bad, "", now)
	if err != nil || !changed || !strings.Contains(string(good.Raw), `"status":"True","type":"weft.dev/Understood"`) ||
		strings.Contains(string(good.Raw), "wrong") {
		t.Errorf("%t %v %s", changed, err, good.Raw)
	}
}

// cluster has one object; the first writes find that it was changed.
type cluster struct {
	store.Objects

	object    store.Object
	conflicts int
	events    []string
}

func (c *cluster) Get(_ context.Context, _ store.Kind, key store.Key) (store.Object, error) {
	if key != c.object.Key {
		return store.Object{}, store.ErrNotFound
	}
	return c.object, nil
}

func (c *cluster) CompareAndSwapStatus(
	_ context.Context, _ store.Kind, _ string, next store.Object,
) (store.Object, error) {
	if c.conflicts > 0 {
		c.conflicts--
		return next, store.ErrConflict
	}
	c.object = next
	return next, nil
}

func (c *cluster) EventOn(_ context.Context, kind store.Kind, o store.Object, e model.Event) error {
	if len(e.Message) > maxEvent {
		return fmt.Errorf("message of %d bytes", len(e.Message))
	}
	c.events = append(c.events, kind.Kind+" "+o.UID()+" "+e.Reason)
	return nil
}

// TestReport: an event has the UID of its policy, a deleted policy has none, and a condition is written although other
// programs write the object's status at the same time.
func TestReport(t *testing.T) {
	object := func(text string) store.Object {
		o, err := store.NewObject([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	c := &cluster{object: object(`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy",
		"metadata":{"namespace":"a","name":"p","uid":"u-1"},"spec":{"podSelector":{}}}`)}
	r := New(Config{Objects: c, Events: c, Now: func() time.Time { return time.Unix(1e9, 0) }})
	for _, name := range []string{"p", "deleted"} {
		key := model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "a", Name: name}
		if err := r.report(t.Context(), key, strings.Repeat("x", 2*maxEvent), true); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(c.events, ", "); got != "NetworkPolicy u-1 UnsupportedPolicy" {
		t.Errorf("events: %s", got)
	}
	c.object = object(`{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicy",
		"metadata":{"name":"p"},"spec":{}}`)
	c.conflicts = 2
	key := model.PolicyKey{Kind: model.KindClusterNetworkPolicy, Name: "p"}
	if err := r.report(t.Context(), key, "spec.tier", false); err != nil {
		t.Error(err)
	}
	if got := c.object.Conditions()[understood]; got.True || got.Message != "spec.tier" {
		t.Errorf("%+v", got)
	}
}

// TestReportInvalid: one node writes an event about an object that policies need, with its kind and UID.
func TestReportInvalid(t *testing.T) {
	o, err := store.NewObject([]byte(`{"apiVersion":"projectcalico.org/v3","kind":"HostEndpoint","metadata":{"name":"h","uid":"u-7"}}`))
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{}
	r := New(Config{Objects: c, Events: c})
	for _, first := range []bool{true, false} {
		if err := r.reportInvalid(t.Context(), invalid{o, strings.Repeat("x", 2*maxEvent)}, first); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(c.events, ", "); got != "HostEndpoint u-7 InvalidPolicyObject" {
		t.Errorf("events: %s", got)
	}
}
