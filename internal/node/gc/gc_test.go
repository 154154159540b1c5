// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/static"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/cri"
	"github.com/weft-net/weft/internal/node/metrics"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// listed is a runtime on a real socket that lists what the test sets.
type listed struct {
	runtime.UnimplementedRuntimeServiceServer
	ids []string
	err error
}

func (l *listed) ListPodSandbox(
	context.Context, *runtime.ListPodSandboxRequest,
) (*runtime.ListPodSandboxResponse, error) {
	var items []*runtime.PodSandbox
	for _, id := range l.ids {
		items = append(items, &runtime.PodSandbox{Id: id, Metadata: &runtime.PodSandboxMetadata{Uid: "uid-" + id}})
	}
	return &runtime.ListPodSandboxResponse{Items: items}, l.err
}

func (l *listed) serve(t *testing.T) (endpoint string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	runtime.RegisterRuntimeServiceServer(s, l)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(socket) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return "unix://" + filepath.Join(dir, "s")
}

// collecting is a collector over real parts.
type collecting struct {
	*Collector
	attacher *attach.Attacher
	ledger   *ledger.Ledger
}

// newCollecting returns a collector of the pod uid-own with the test's clock.
func newCollecting(t *testing.T, endpoint string, now *time.Time) *collecting {
	t.Helper()
	host, err := kernel.Dial(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	l, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	a := attach.New(attach.Config{
		Records: l, Host: host, Planners: plugin.Builtin(), Allocators: map[string]ipam.Allocator{"static": static.New()},
		Log: log, Boot: "boot", Now: func() time.Time { return *now },
	})
	return &collecting{
		Collector: New(Config{
			Endpoint: endpoint, Records: l, Metrics: metrics.New("test"), Log: log, Now: func() time.Time { return *now },
			PodUID:      "uid-own",
			Attachments: a,
		}),
		attacher: a, ledger: l,
	}
}

// attached makes an attachment, as a runtime does for the kubelet or as an operator does by hand.
func (c *collecting) attached(t *testing.T, id, address string, byKubelet bool) {
	t.Helper()
	n, err := cni.ParseNetwork([]byte(`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"ptp",
		"ipam":{"type":"static","addresses":[{"address":"` + address + `","gateway":"10.9.0.1"}]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	ns := nettest.NS(t, id)
	r := model.Request{Network: "pods", CNIVersion: "1.0.0", ContainerID: id, IfName: "eth0", Netns: ns.Path()}
	if byKubelet {
		r.Args = [][2]string{{"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", "web"}, {"K8S_POD_INFRA_CONTAINER_ID", id}}
	}
	if _, err := c.attacher.Add(t.Context(), attach.Job{Network: n, Request: r, Netns: ns}); err != nil {
		t.Fatal(err)
	}
}

func (c *collecting) known(t *testing.T) []string {
	t.Helper()
	records, err := c.ledger.List()
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range records {
		ids = append(ids, r.Request.ContainerID)
	}
	slices.Sort(ids)
	return ids
}

// TestCollect: an attachment is deleted if two lists in a row lack its sandbox and it is old enough.
func TestCollect(t *testing.T) {
	nettest.EndToEnd(t)
	list := &listed{ids: []string{"own", "live"}}
	now := time.Now()
	c := newCollecting(t, list.serve(t), &now)
	defer func() { _ = c.client.Close() }()
	c.attached(t, "live", "10.9.0.2/24", true)
	c.attached(t, "gone", "10.9.0.3/24", true)
	c.attached(t, "hand", "10.9.0.4/24", false)
	all := []string{"gone", "hand", "live"}
	for _, step := range []struct {
		name  string
		after time.Duration
		ids   []string
		err   error
		want  error
		left  []string
	}{
		{name: "young", ids: []string{"own", "live"}, left: all},
		{name: "young again", after: leakAge - time.Second, ids: []string{"own", "live"}, left: all},
		{name: "one list", after: 2 * time.Second, ids: []string{"own", "live"}, left: all},
		{name: "empty", want: cri.ErrEmpty, left: all},
		{name: "one list after none", ids: []string{"own", "live"}, left: all},
		{name: "failed", err: errors.New("busy"), left: all},
		{name: "another's list", ids: []string{"other"}, want: errForeignList, left: all},
		{name: "one list", ids: []string{"own", "live"}, left: all},
		{name: "two lists", ids: []string{"own", "live"}, left: []string{"hand", "live"}},
		{name: "live once more", ids: []string{"own", "live"}, left: []string{"hand", "live"}},
	} {
		now = now.Add(step.after)
		list.ids, list.err = step.ids, step.err
		err := c.pass(t.Context())
		if (err != nil) != (step.want != nil || step.err != nil) || step.want != nil && !errors.Is(err, step.want) {
			t.Errorf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(step.left, c.known(t)); diff != "" {
			t.Fatalf("%s: %s", step.name, diff)
		}
	}
	if text := gathered(t, c.cfg.Metrics); !strings.Contains(text, `weft_gc_attachments_total{network="pods"} 1`) {
		t.Error(text)
	}
}

// TestCollectWhenTheClockIsSet: an attachment's age is not that of its record, which is wrong when the clock is set: one
// whose sandbox is being created is kept, though it seems hours old, and a leak is deleted, though it seems to be from
// the future.
func TestCollectWhenTheClockIsSet(t *testing.T) {
	nettest.EndToEnd(t)
	for name, set := range map[string]time.Duration{"forward": 5 * time.Hour, "back": -5 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			list := &listed{ids: []string{"own"}}
			now := time.Now()
			c := newCollecting(t, list.serve(t), &now)
			defer func() { _ = c.client.Close() }()
			c.attached(t, name, "10.9.0.2/24", true)
			now = now.Add(set)
			for after, left := range []int{1, 1, 1, 1, 1, 1, 0} {
				if err := c.pass(t.Context()); err != nil {
					t.Fatal(err)
				}
				if known := c.known(t); len(known) != left {
					t.Errorf("after %d minutes: %v are known, want %d", after, known, left)
				}
				now = now.Add(time.Minute)
			}
		})
	}
}

// gathered returns what Prometheus would scrape.
func gathered(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	(&metrics.Server{
		Metrics: m, Log: slog.New(slog.DiscardHandler),
	}).Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}
