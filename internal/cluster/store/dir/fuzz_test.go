// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/weft-net/weft/internal/cluster/store"
)

// FuzzParse: whatever a file holds, reading it does not break; writing an object back as it is leaves every object of
// the file as it was; taking one out leaves the others.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n---\n# c\napiVersion: v1\nkind: Node\nmetadata: {name: a}\nspec: {podCIDR: 10.0.0.0/24}\n",
		"\ufeff---\r\napiVersion: v1\r\nkind: Namespace\r\nmetadata:\r\n  name: x\r\n--- # end\r\n",
		`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}},{"apiVersion":"v1","kind":"Pod","metadata":{"name":"q"},"x":1.50}]}`,
		"kind: [", "--- {a: b}\n", "---\n---\n", "a: &a [*a]\n",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\ntext: |\n  ---\n  b\n",
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, b []byte, isJSON bool) {
		path := "x.yaml"
		if isJSON {
			path = "x.json"
		}
		c, _ := parse(path, isJSON, b, nil)
		entries := c.entries
		for _, p := range c.problems {
			if p.Error() == "" {
				t.Error("a problem without words")
			}
		}
		if len(c.problems) > 0 {
			return // such a file is never written
		}
		for i, e := range entries {
			same, err := e.rendered(b, e.Raw)
			if err != nil {
				t.Fatalf("write %s back: %v", e.Key, err)
			}
			compare(t, isJSON, same, c.docs, entries)
			rest, err := e.removed(b)
			if err != nil {
				t.Fatalf("take %s out: %v", e.Key, err)
			}
			others := append(append([]entry(nil), entries[:i]...), entries[i+1:]...)
			compare(t, isJSON, rest, c.docs, others)
		}
	})
}

// compare compares a written file with the objects that it should have. Those of known documents are not parsed again,
// which makes no difference.
func compare(t *testing.T, isJSON bool, b []byte, known map[string][]entry, want []entry) {
	t.Helper()
	var got content
	if len(bytes.TrimSpace(b)) > 0 {
		got, _ = parse("again", isJSON, b, nil)
		if len(got.problems) > 0 {
			t.Fatalf("written file has a fault: %v\n%s", got.problems[0], b)
		}
		quick, _ := parse("again", isJSON, b, known)
		if d := cmp.Diff(got.entries, quick.entries, cmp.Exporter(func(reflect.Type) bool { return true })); d != "" {
			t.Errorf("parsed with the known documents (-all parsed +known):\n%s", d)
		}
	}
	check(t, b, got.entries, want)
}

func check(t *testing.T, b []byte, got, want []entry) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d objects after writing, want %d\n%s", len(got), len(want), b)
	}
	for i := range got {
		if got[i].Key != want[i].Key || got[i].Version != want[i].Version {
			t.Errorf("object %d is %s, want %s\n%s\n%s", i, got[i].Key, want[i].Key, got[i].Raw, want[i].Raw)
		}
	}
}

// FuzzObject: no JSON breaks the understanding of the known kinds.
func FuzzObject(f *testing.F) {
	f.Add(
		[]byte(
			`{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"},"spec":{"podCIDRs":["::/0"]},"status":{"addresses":[{"type":"InternalIP","address":"::ffff:1.2.3.4"}]}}`,
		),
	)
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","annotations":null},"status":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := store.NewObject(b)
		if err != nil {
			return
		}
		edited, err := o.Edited(store.PodStatus{Phase: "Running", Annotations: map[string]string{"a": "b"}}.Edit)
		if err == nil && edited.Key != o.Key {
			t.Errorf("%s became %s", o.Key, edited.Key)
		}
	})
}
