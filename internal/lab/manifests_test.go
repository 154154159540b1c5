// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/lab/layout"
)

func testLayout(t *testing.T) layout.Layout {
	t.Helper()
	l, err := layout.Spec{Name: "t", Nodes: 3, Wires: 2, ClusterCIDRs: []netip.Prefix{
		netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd42::/48"),
	}}.Layout()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func manifests(t *testing.T, files map[string]string) string {
	t.Helper()
	from := t.TempDir()
	for name, text := range files {
		path := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return from
}

func podText(name, more string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {" + more +
		"containers: [{name: c, command: [sleep, '60']}]}\n"
}

func TestFillStore(t *testing.T) {
	from := manifests(t, map[string]string{
		"a.yaml":       podText("a", "") + "---\n" + podText("b", ""),
		"c.yaml":       podText("c", "nodeName: node1, "),
		"d.yaml":       strings.Replace(podText("d", ""), "name: d", "name: d, namespace: far, uid: u-1", 1),
		"node.yaml":    "apiVersion: v1\nkind: Node\nmetadata: {name: node2, labels: {disk: fast}}\n",
		"deploy.yaml":  "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: x, namespace: far}\n",
		"other.json":   "{ not a manifest",
		"sub/e.yaml":   podText("e", ""),
		".hidden.yaml": "neither: this",
	})
	d := Dir(t.TempDir())
	pods, _, others, err := Up{Dir: d, From: []string{from}}.fillStore(context.Background(), testLayout(t))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"StatefulSet far/x"}, others); d != "" {
		t.Error(d)
	}
	where := map[string]string{}
	for _, p := range pods {
		where[p.Namespace+"/"+p.Name] = p.Node
	}
	want := map[string]string{"default/a": "node2", "default/b": "node3", "default/c": "node1", "far/d": "node1"}
	if d := cmp.Diff(want, where); d != "" {
		t.Error(d)
	}
	s, err := dir.Open(d.Store())
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Cluster(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Nodes) != 3 || c.Nodes[1].Labels["disk"] != "fast" || c.Nodes[1].PodCIDRs[0].String() != "10.42.2.0/24" ||
		c.Nodes[1].Addrs[0].String() != "172.18.0.2" {
		t.Errorf("nodes %+v", c.Nodes)
	}
	if len(c.Namespaces) != 2 {
		t.Errorf("namespaces %+v, want default and far", c.Namespaces)
	}
	for _, p := range c.Pods {
		if p.Node != want[p.Namespace+"/"+p.Name] {
			t.Errorf("pod %s is on %q in the store", p.Name, p.Node)
		}
		o, err := s.Get(store.PodKey(p.Namespace, p.Name))
		if err != nil || !strings.Contains(string(o.Raw), `"uid":"`+p.UID+`"`) {
			t.Errorf("pod %s has no uid in its manifest: %s %v", p.Name, o.Raw, err)
		}
	}
}

func TestInvalidManifests(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		want  string
	}{
		{map[string]string{"a.yaml": "apiVersion: v1\nkind: Pod\nspec: {}\n"}, "a.yaml"},
		{map[string]string{"a.yaml": "apiVersion: v1\nkind: Pod\nspec: {}\n"}, "metadata.name is missing"},
		{
			map[string]string{"a.yaml": podText("a", "nodeName: node9, ")},
			`spec.nodeName "node9" is not a node of this lab`,
		},
		{
			map[string]string{"a.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"},
			"pod default/a: spec.containers is empty",
		},
		{map[string]string{"a.yaml": podText("a", "hostNetwrk: true, ")}, `unknown field "hostNetwrk"`},
		{
			map[string]string{"a.yaml": "apiVersion: v1\nkind: Node\nmetadata: {name: alpha}\n"},
			`"alpha" is not a node of this lab`,
		},
		{map[string]string{"a.json": "{}"}, "contains no manifest"},
	} {
		from := manifests(t, c.files)
		d := Dir(t.TempDir())
		_, _, _, err := Up{Dir: d, From: []string{from}}.fillStore(context.Background(), testLayout(t))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), string(d)) {
			t.Errorf("%v names the lab's copy instead of the user's file", err)
		}
	}
	if _, _, _, err := (Up{
		Dir: Dir(t.TempDir()), From: []string{"/nowhere"},
	}).fillStore(context.Background(), testLayout(t)); err == nil || !strings.Contains(err.Error(), `--from "/nowhere"`) {
		t.Errorf("got %v", err)
	}
}
