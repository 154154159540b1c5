// SPDX-License-Identifier: Apache-2.0

package flowserver

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-net/weft/api/v1alpha1"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/cluster/store/kube"
)

// published are the objects of a cluster with a node, which an agent reads and writes.
type published struct {
	store.Objects
	t    *testing.T
	path string

	mu      sync.Mutex
	failing int      // how many requests fail from now on
	dropped []string // annotations that were removed
	// wrote is closed after the first write of a listener.
	wrote     chan struct{}
	wroteOnce sync.Once
}

// newPublished returns one with these objects.
func newPublished(t *testing.T, objects ...string) *published {
	t.Helper()
	p := &published{t: t, path: t.TempDir(), wrote: make(chan struct{})}
	for _, text := range objects {
		p.put(text)
	}
	s, err := dir.Open(p.path)
	if err != nil {
		t.Fatal(err)
	}
	p.Objects = s.Objects()
	return p
}

// put writes an object as its file.
func (p *published) put(text string) {
	p.t.Helper()
	o, err := store.NewObject([]byte(text))
	if err == nil {
		err = os.WriteFile(filepath.Join(p.path, strings.ToLower(o.Key.Kind)+".json"), []byte(text), 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *published) publication(after func(time.Duration) <-chan time.Time) Publication {
	return Publication{Node: "node1", Objects: p, API: p, Log: slog.New(slog.DiscardHandler), After: after}
}

var errAway = errors.New("server is away")

func (p *published) request() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failing > 0 {
		p.failing--
		return errAway
	}
	return nil
}

func (p *published) Get(ctx context.Context, kind store.Kind, key store.Key) (store.Object, error) {
	if err := p.request(); err != nil {
		return store.Object{}, err
	}
	o, err := p.Objects.Get(ctx, kind, key)
	if err != nil {
		o.Key = key // as the API server's client does
	}
	return o, err
}

func (p *published) Create(ctx context.Context, kind store.Kind, o store.Object) (store.Object, error) {
	defer p.wroteOnce.Do(func() { close(p.wrote) })
	return p.Objects.Create(ctx, kind, o)
}

func (p *published) PatchNode(_ context.Context, _ string, status kube.NodeStatus) error {
	if err := p.request(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped = append(p.dropped, status.Dropped...)
	return nil
}

// object returns node1's FlowListener, which may be none.
func (p *published) object() (store.Object, error) {
	return p.Objects.Get(p.t.Context(), store.FlowListeners(), store.FlowListeners().Key("", "node1"))
}

func (p *published) listener() v1alpha1.FlowListenerSpec {
	p.t.Helper()
	o, err := p.object()
	if err != nil {
		p.t.Fatal(err)
	}
	l, err := o.FlowListener()
	if err != nil {
		p.t.Fatal(err)
	}
	return l
}

// node is the Node node1 with an uid and annotations.
func node(uid, annotations string) string {
	return `{"apiVersion":"v1","kind":"Node","metadata":{"name":"node1","uid":"` + uid + `","annotations":{` + annotations + `}}}`
}

const annotated = `"weft.dev/flow-listener":"{\"address\":\":9443\",\"key\":\"x\"}"`

func at(address string) v1alpha1.FlowListenerSpec {
	return v1alpha1.FlowListenerSpec{Address: address, Key: "key of " + address}
}

// TestPublish: the listener's object is the Node's, is written only when it changes, and again if it or the Node is replaced;
// the annotation of an agent of an earlier version goes when the object is there.
func TestPublish(t *testing.T) {
	p := newPublished(t, node("u1", annotated))
	pub := p.publication(time.After)
	write := func(l v1alpha1.FlowListenerSpec) string {
		t.Helper()
		if err := pub.write(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		o, err := p.object()
		if err != nil || p.listener() != l {
			t.Fatalf("%v: %s, want %+v", err, o.Raw, l)
		}
		return o.Version + string(o.Raw)
	}
	first := write(at(":9443"))
	if !strings.Contains(first, `"uid":"u1"`) || !slices.Equal(p.dropped, []string{store.FlowListenerAnnotation}) {
		t.Errorf("published %s, removed annotations %v", first, p.dropped)
	}
	p.put(node("u1", ""))
	if again := write(at(":9443")); again != first || len(p.dropped) != 1 {
		t.Errorf("written without a change: %s, before %s; removed annotations %v", again, first, p.dropped)
	}
	write(at(":9444")) // of the next agent
	p.put(node("u2", ""))
	if again := write(at(":9444")); !strings.Contains(again, `"uid":"u2"`) || strings.Contains(again, "u1") {
		t.Errorf("the owner is not the new Node: %s", again)
	}

	// Requests fail, then succeed.
	p = newPublished(t, node("u1", annotated))
	p.failing = 3
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		p.publication(func(d time.Duration) <-chan time.Time {
			if d == publishPeriod {
				return nil
			}
			return time.After(time.Millisecond)
		}).publish(ctx, at(":9443"))
	}()
	<-p.wrote
	cancel()
	<-over
	if got := p.listener(); got != at(":9443") {
		t.Errorf("after errors %+v", got)
	}
}

// TestPublishWithoutKind: the error where the definitions of kinds are of an earlier version says what to do.
func TestPublishWithoutKind(t *testing.T) {
	p := newPublished(t, node("u1", ""))
	pub := p.publication(time.After)
	pub.Objects = withoutKind{p}
	if err := pub.write(t.Context(), at(":9443")); err == nil || !strings.Contains(err.Error(), "has no kind FlowListener") ||
		!strings.Contains(err.Error(), "crds.yaml") {
		t.Error(err)
	}
}

type withoutKind struct{ store.Objects }

func (withoutKind) Create(context.Context, store.Kind, store.Object) (store.Object, error) {
	return store.Object{}, store.ErrNotFound
}

// TestWithdraw: an agent without a listener removes the object of an earlier one, and the annotation of one of an earlier
// version, and nothing else.
func TestWithdraw(t *testing.T) {
	object := `{"apiVersion":"weft.dev/v1alpha1","kind":"FlowListener","metadata":{"name":"node1"},"spec":{"address":":9443","key":"x"}}`
	for _, c := range []struct {
		objects []string
		failing int
		want    []string // annotations that are removed
	}{
		{nil, 0, nil},
		{[]string{node("u", "")}, 0, nil},
		{[]string{node("u", `"weft.dev/pod-addresses":"x"`), object}, 0, nil},
		{[]string{node("u", annotated)}, 4, []string{store.FlowListenerAnnotation}},
		{[]string{node("u", annotated), object}, 4, []string{store.FlowListenerAnnotation}},
		{[]string{node("u", `"weft.dev/flow-listener":"not valid"`)}, 0, []string{store.FlowListenerAnnotation}},
		{[]string{strings.Replace(object, `":9443"`, `"not valid"`, 1)}, 0, nil},
	} {
		p := newPublished(t, c.objects...)
		p.failing = c.failing
		now := make(chan time.Time)
		close(now)
		if err := p.publication(func(time.Duration) <-chan time.Time { return now }).Withdraw(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := p.object(); !errors.Is(err, store.ErrNotFound) || !slices.Equal(p.dropped, c.want) {
			t.Errorf("%s: %v, removed annotations %v", c.objects, err, p.dropped)
		}
	}
}
