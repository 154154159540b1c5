// SPDX-License-Identifier: Apache-2.0

package dir_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const nodes = `# the machines
apiVersion: v1
kind: Node
metadata:
  name: a
  labels: {zone: east}
spec:
  podCIDRs: [10.244.1.0/24, "fd00:244:1::/64"]
status:
  addresses:
  - {type: InternalIP, address: 192.168.0.1}
  - {type: Hostname, address: a}
---
apiVersion: v1
kind: Node
metadata: {name: b}
spec: {podCIDR: 10.244.2.0/24}
status: {addresses: [{type: InternalIP, address: 192.168.0.2}, {type: InternalIP, address: "fd00::2"}]}
`

const pods = `---
# first
apiVersion: v1
kind: Pod
metadata: {name: web, annotations: {keep: "me"}}
spec: {nodeName: a, terminationGracePeriodSeconds: 12345678901234567}
---
# a kind that nobody here knows
apiVersion: example.org/v1
kind: Thing
metadata: {name: "odd:name"}
spec: {x: 1.50,   y: [a,  b]}   # odd blanks
`

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func open(t *testing.T, files map[string]string) (*dir.Store, string) {
	t.Helper()
	path := t.TempDir()
	write(t, path, files)
	s, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s, path
}

// TestDeleteSweeps: a deletion removes the temporary files of killed writers, as a write does.
func TestDeleteSweeps(t *testing.T) {
	const temp = ".weft-new-pod.yaml.tmp"
	s, path := open(t, map[string]string{"ns.yaml": "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}", temp: "{"})
	if err := s.Delete(t.Context(), store.Namespaces().Key("", "shop"), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(path, temp)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", temp, err)
	}
}

func TestClusterFromManifests(t *testing.T) {
	s, path := open(t, map[string]string{
		"nodes.yaml": nodes, "pods.yml": pods, "notes.txt": "{", ".hidden.yaml": "{",
		"ns.json": `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","labels":{"a":"b"}}}]}`,
	})
	if err := os.Mkdir(filepath.Join(path, "sub.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := s.Cluster(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := model.Cluster{
		Nodes: []model.Node{
			{
				Name: "a", Labels: map[string]string{"zone": "east"}, Addrs: []netip.Addr{netip.MustParseAddr("192.168.0.1")},
				PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:244:1::/64")},
			},
			{
				Name: "b", Addrs: []netip.Addr{netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("fd00::2")},
				PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.2.0/24")},
			},
		},
		Pods: []model.Pod{
			{
				Namespace: "default", Name: "web", UID: store.DeriveUID(store.PodKey("default", "web")), Node: "a",
				Annotations: map[string]string{"keep": "me"},
			},
		},
		Namespaces: []model.Namespace{{Name: "shop", Labels: map[string]string{"a": "b"}}},
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
		t.Errorf("cluster (-want +got):\n%s", d)
	}
	if problems, err := s.Problems(); err != nil || len(problems) > 0 {
		t.Errorf("problems %v, error %v", problems, err)
	}
}

func TestFaultsAreNamedAndTheRestLoads(t *testing.T) {
	for _, c := range []struct{ name, file, text, want string }{
		{"broken YAML", "x.yaml", "a: b\n---\n\napiVersion: v1\nkind: [\n", "x.yaml line 5"},
		{"broken JSON", "x.json", "{\n\"a\": 1,\n}", "x.json line 3"},
		{
			"no name", "x.yaml", "---\n# c\napiVersion: v1\nkind: Pod\nmetadata: {}\n",
			"x.yaml line 3: field metadata.name is missing",
		},
		{"no kind", "x.yaml", "apiVersion: v1\n", "x.yaml line 1: field kind is missing"},
		{"no apiVersion", "x.yaml", "kind: Pod\n", "field apiVersion is missing"},
		{"duplicate key", "x.yaml", "apiVersion: v1\nkind: Pod\nkind: Node\n", "x.yaml line 3"},
		{"bad name", "x.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: A/b}\n", `metadata.name "A/b"`},
		{
			"bad CIDR", "x.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nspec: {podCIDR: 10.1.2.3/24}\n",
			`write "10.1.2.0/24"`,
		},
		{
			"bad address", "x.yaml",
			"apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {addresses: [{type: InternalIP, address: 1.2.3}]}\n",
			`status.addresses[0].address "1.2.3"`,
		},
		{
			"contradiction", "x.yaml",
			"apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nspec: {podCIDR: 10.1.0.0/24, podCIDRs: [10.2.0.0/24]}\n",
			"contradicts",
		},
		{
			"wrong type", "x.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: n1}\nspec: {hostNetwork: 3}\n",
			"Pod default/n1",
		},
		{"duplicate", "x.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: b}\n", "nodes.yaml line 14 and in "},
		{"crowded", "x.yaml", "a: 1\n--- {b: 2}\n", "x.yaml line 2"},
		{"no mapping", "x.yaml", "- a\n", "x.yaml line 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, path := open(t, map[string]string{"nodes.yaml": nodes, c.file: c.text})
			problems, err := s.Problems()
			if err != nil || len(problems) == 0 || !strings.Contains(problems[len(problems)-1].Error(), c.want) {
				t.Errorf("problems %v (error %v), want %q", problems, err, c.want)
			}
			var fault *model.Error
			for _, p := range problems {
				if !errors.As(p, &fault) || fault.Hint == "" {
					t.Errorf("%v: no fault with a way out", p)
				}
			}
			for _, name := range []string{"a", "b"} {
				if _, err := s.Get(store.NodeKey(name)); err != nil {
					t.Errorf("the others do not load: %v", err)
				}
			}
			if b, _ := os.ReadFile(filepath.Join(path, c.file)); string(b) != c.text {
				t.Errorf("file was changed: %s", b)
			}
		})
	}
}

func TestWriteBackKeepsTheRest(t *testing.T) {
	s, path := open(t, map[string]string{"pods.yml": pods})
	ctx := context.Background()
	ips := []netip.Addr{netip.MustParseAddr("10.244.1.5"), netip.MustParseAddr("fd00::5")}
	err := s.SetPodStatus(ctx, "default", "web", store.PodStatus{
		Phase: "Running", IPs: ips, Annotations: map[string]string{"n": "v"},
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(path, "pods.yml"))
	if err != nil {
		t.Fatal(err)
	}
	_, thing, _ := strings.Cut(pods, "# a kind")
	for _, want := range []string{
		"---\n# first\n", "terminationGracePeriodSeconds: 12345678901234567\n", "# a kind" + thing, "keep: me", "n: v",
		"podIP: 10.244.1.5",
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%q is gone from\n%s", want, b)
		}
	}
	o, err := s.Get(store.PodKey("default", "web"))
	if err != nil {
		t.Fatal(err)
	}
	if pod, err := o.Pod(); err != nil || pod.Phase != "Running" || len(pod.IPs) != 2 {
		t.Errorf("pod %+v, %v", pod, err)
	}
	before := o.Version
	if err := s.SetPodStatus(ctx, "default", "web", store.PodStatus{
		Phase: "Running", IPs: []netip.Addr{}, Annotations: map[string]string{"n": ""},
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.CompareAndSwap(t.Context(), before, o); !errors.Is(err, store.ErrConflict) {
		t.Errorf("swap on an old version: %v", err)
	}
	if err := s.Delete(t.Context(), store.PodKey("default", "web"), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(store.PodKey("default", "web")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deleted pod: %v", err)
	}
	if err := s.Delete(t.Context(), store.Key{Group: "example.org", Kind: "Thing", Name: "odd:name"}, ""); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(path, "*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestCreate(t *testing.T) {
	s, path := open(t, nil)
	o, err := store.NodeObject(model.Node{
		Name: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")},
		Addrs: []netip.Addr{netip.MustParseAddr("::1")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(path, "node-n1.yaml")); err != nil {
		t.Error(err)
	}
	if got, err := s.Get(o.Key); err != nil || got.Version != o.Version {
		t.Errorf("read back %+v, %v; want version %s", got, err, o.Version)
	}
	if _, err := s.Create(t.Context(), o); !errors.Is(err, store.ErrExists) {
		t.Errorf("second create: %v", err)
	}
}

// A pool has a creation time, as in a cluster: of two with the same addresses the older one allocates them.
func TestCreatedPool(t *testing.T) {
	s, _ := open(t, nil)
	for manifest, want := range map[string]int64{
		`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressPool","metadata":{"name":"new"}}`:                                            0,
		`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressPool","metadata":{"name":"old","creationTimestamp":"2020-01-02T03:04:05Z"}}`: 1577934245,
	} {
		before := time.Now().Unix()
		o, err := store.NewObject([]byte(manifest))
		if err == nil {
			o, err = s.Create(t.Context(), o)
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Get(o.Key)
		if err != nil || got.Version != o.Version {
			t.Fatalf("%s %v", got.Version, err)
		}
		pool, err := got.AddressPool()
		if err != nil || want != 0 && pool.Created != want ||
			want == 0 && (pool.Created < before || pool.Created > time.Now().Unix()) {
			t.Errorf("%s: created %d, %v", o.Key.Name, pool.Created, err)
		}
	}
}

func TestListItemsAreWritten(t *testing.T) {
	s, path := open(t, map[string]string{"l.json": `{"apiVersion":"v1","kind":"List","items":[
		{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}, {"apiVersion":"v1","kind":"Pod","metadata":{"name":"q"}}]}`})
	if err := s.SetPodStatus(context.Background(), "default", "q", store.PodStatus{Phase: "Failed"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), store.PodKey("default", "p"), ""); err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(filepath.Join(path, "l.json"))
	if o, err := s.Get(store.PodKey("default", "q")); err != nil || !strings.Contains(string(o.Raw), "Failed") {
		t.Errorf("%v\n%s", err, b)
	}
}

func TestAFaultyFileKeepsWhatItSaidAndIsNotWritten(t *testing.T) {
	s, path := open(t, map[string]string{"nodes.yaml": nodes})
	broken := strings.Replace(nodes, "metadata: {name: b}", "metadata: {name: b", 1)
	write(t, path, map[string]string{"nodes.yaml": broken})
	if _, err := s.Get(store.NodeKey("b")); err != nil {
		t.Errorf("node b: %v", err)
	}
	_, err := s.Modify(context.Background(), store.NodeKey("a"), store.Annotate(map[string]string{"x": "y"}))
	if err == nil || !strings.Contains(err.Error(), "fix the file") {
		t.Errorf("write to a faulty file: %v", err)
	}
	write(t, path, map[string]string{"nodes.yaml": strings.Split(nodes, "---")[0]})
	if _, err := s.Get(store.NodeKey("b")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("node b after the file was put right: %v", err)
	}
}

func TestManyWriters(t *testing.T) {
	_, path := open(t, map[string]string{"nodes.yaml": nodes, "pods.yml": pods})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			s, err := dir.Open(path) // each as another process would
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 10 {
				_, err := s.Modify(context.Background(), store.NodeKey("b"),
					store.Annotate(map[string]string{fmt.Sprintf("w%d-%d", w, i): "x"}))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s, _ := dir.Open(path)
	o, err := s.Get(store.NodeKey("b"))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := o.Node(); err != nil || len(n.Annotations) != 40 {
		t.Errorf("%d annotations, want 40 (%v)", len(n.Annotations), err)
	}
}

// TestEditorMeanwhile: an editor knows no lock. If it saves the file between the reading and the writing of a change,
// both are in the file; a document is never written over another one.
func TestEditorMeanwhile(t *testing.T) {
	for name, edited := range map[string]string{
		"another document grew":   strings.Replace(nodes, "zone: east", "zone: east, row: seventeen, rack: nine", 1),
		"another document shrank": strings.Replace(nodes, "  labels: {zone: east}\n", "", 1),
		"the object changed":      strings.Replace(nodes, "{name: b}", "{name: b, labels: {zone: west}}", 1),
		"the file was emptied":    "",
		"half of the file":        nodes[:len(nodes)-30],
	} {
		t.Run(name, func(t *testing.T) {
			s, path := open(t, map[string]string{"nodes.yaml": nodes})
			saves := 0
			_, err := s.Modify(context.Background(), store.NodeKey("b"), func(fields map[string]any) error {
				if saves++; saves == 1 {
					write(t, path, map[string]string{"nodes.yaml": edited})
				}
				return store.Annotate(map[string]string{"x": "y"})(fields)
			})
			b, readErr := os.ReadFile(filepath.Join(path, "nodes.yaml"))
			if readErr != nil {
				t.Fatal(readErr)
			}
			if name == "the file was emptied" || name == "half of the file" {
				if err == nil || string(b) != edited {
					t.Errorf("%v, and the file is %s", err, b)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			again, err := dir.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if problems, err := again.Problems(); err != nil || len(problems) > 0 {
				t.Fatalf("%v, %v in %s", problems, err, b)
			}
			want, _ := open(t, map[string]string{"nodes.yaml": edited})
			for _, node := range []string{"a", "b"} {
				have, err := again.Get(store.NodeKey(node))
				if err != nil {
					t.Fatal(err)
				}
				theirs, err := want.Get(store.NodeKey(node))
				if err == nil && node == "b" {
					theirs, err = theirs.Edited(store.Annotate(map[string]string{"x": "y"}))
				}
				if err != nil || have.Version != theirs.Version {
					t.Errorf("node %s: %s, want %s (%v)", node, have.Raw, theirs.Raw, err)
				}
			}
		})
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	if os.Geteuid() == 0 {
		nettest.SkipMissing(t, "root may write to every directory; the ordinary user's run tests this")
	}
	s, path := open(t, map[string]string{"nodes.yaml": nodes})
	if err := os.Chmod(path, 0o555); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(path, 0o755) }()
	_, err := s.Modify(context.Background(), store.NodeKey("a"), store.Annotate(map[string]string{"x": "y"}))
	var fault *model.Error
	if !errors.As(err, &fault) || !strings.Contains(fault.Hint, "writable") {
		t.Errorf("write to a read-only directory: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "none"), os.Args[0]} {
		var fault *model.Error
		if _, err := dir.Open(path); !errors.As(err, &fault) || fault.Code != model.CodeIO {
			t.Errorf("open %s: %v", path, err)
		}
	}
}

func TestWatch(t *testing.T) {
	s, path := open(t, map[string]string{"nodes.yaml": nodes})
	ctx, cancel := context.WithCancel(context.Background())
	events, err := s.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	next := func(want string) {
		t.Helper()
		select {
		case e := <-events:
			got := string(e.Type) + " " + e.Object.Key.String()
			if e.Err != nil {
				got = string(e.Type) + " " + e.Err.Error()
			}
			if !strings.HasPrefix(got, want) {
				t.Errorf("event %q, want %q", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no event; want %q", want)
		}
	}
	next("added Node a")
	next("added Node b")
	next("synced")
	write(t, path, map[string]string{"pod.yaml": strings.Split(pods, "---")[1]})
	next("added Pod default/web")
	if err := s.SetPodStatus(ctx, "default", "web", store.PodStatus{Phase: "Running"}); err != nil {
		t.Fatal(err)
	}
	next("modified Pod default/web")
	write(t, path, map[string]string{"x.yaml": "kind: ["})
	next("faulty " + filepath.Join(path, "x.yaml") + " line 1")
	if err := os.Remove(filepath.Join(path, "nodes.yaml")); err != nil {
		t.Fatal(err)
	}
	next("deleted Node ")
	next("deleted Node ")
	cancel()
	for range events {
	}
}
