// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

func deployment(t *testing.T, kind string, n int, command string) store.Object {
	t.Helper()
	o, err := store.NewObject(fmt.Appendf(nil, `{"apiVersion":"apps/v1","kind":%q,"metadata":{"name":"web"},"spec":{"replicas":%d,
		"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},
		"spec":{"containers":[{"name":"main","command":[%q]}]}}}}`, kind, n, command))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// apply applies a plan to pods; those that are created run at once if running.
func apply(t *testing.T, sets []store.Object, pods []model.Pod, running bool) (out []model.Pod, changes int) {
	t.Helper()
	c, err := Plan(sets, pods, func() string { return "uid" })
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		deleted := false
		for _, k := range c.Delete {
			deleted = deleted || k == store.PodKey(p.Namespace, p.Name)
		}
		if !deleted {
			out = append(out, p)
		}
	}
	for _, o := range c.Create {
		p, err := o.Pod()
		if err != nil {
			t.Fatal(err)
		}
		if running {
			p.Phase = "Running"
		}
		out = append(out, p)
	}
	return out, len(c.Create) + len(c.Delete)
}

// Plans converge, a second one changes nothing, and as many replicas as are wanted run while a template changes.
func TestPlan(t *testing.T) {
	for _, kind := range []string{"Deployment", "ReplicaSet"} {
		old := []store.Object{deployment(t, kind, 3, "a")}
		pods, _ := apply(t, old, nil, true)
		if _, n := apply(t, old, pods, true); len(pods) != 3 || n != 0 {
			t.Fatalf("%s: %d pods, and %d changes of a second plan", kind, len(pods), n)
		}
		if pods[0].Labels["app"] != "web" || pods[0].UID != "uid" || pods[0].Annotations[OwnerAnnotation] != kind+"/web" {
			t.Errorf("%s: pod %+v", kind, pods[0])
		}
		if fewer, _ := apply(t, []store.Object{deployment(t, kind, 1, "a")}, pods, true); len(fewer) != 1 || fewer[0].Name != pods[0].Name {
			t.Errorf("%s: scaled to 1: %+v", kind, fewer)
		}
		next := []store.Object{deployment(t, kind, 3, "b")}
		both, changes := apply(t, next, pods, false)
		if kind == "ReplicaSet" {
			if changes != 0 {
				t.Errorf("a changed template of a ReplicaSet makes %d changes", changes)
			}
			continue
		}
		if len(both) != 6 {
			t.Errorf("a changed template: %d pods before the new ones run", len(both))
		}
		for i := range both {
			both[i].Phase = "Running"
		}
		left, _ := apply(t, next, both, true)
		set, err := Read(next[0])
		if err != nil || len(left) != 3 || set.Ready(left) != 3 || set.Ready(pods) != 0 {
			t.Errorf("a changed template: %v, %+v", err, left)
		}
		if gone, _ := apply(t, nil, left, true); len(gone) != 0 {
			t.Errorf("the Deployment is deleted, and has %+v", gone)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	good := string(deployment(t, "Deployment", 3, "a").Raw)
	for want, text := range map[string]string{
		"spec.replicas -1 is out of range":               strings.Replace(good, `"replicas":3`, `"replicas":-1`, 1),
		"spec.replicas 5000 is out of range":             strings.Replace(good, `"replicas":3`, `"replicas":5000`, 1),
		"spec.selector.matchLabels is empty":             strings.Replace(good, `"matchLabels":{"app":"web"}`, `"matchLabels":{}`, 1),
		"spec.selector.matchLabels app: other is not in": strings.Replace(good, `"matchLabels":{"app":"web"}`, `"matchLabels":{"app":"other"}`, 1),
		"spec.template.spec is missing":                  strings.Replace(good, `"template":`, `"temp":`, 1),
	} {
		o, err := store.NewObject([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Read(o); err == nil || !strings.HasPrefix(err.Error(), "Deployment default/web: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
