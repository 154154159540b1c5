// SPDX-License-Identifier: Apache-2.0

package unenforced

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
)

type records []attach.Record

func (r records) List() ([]attach.Record, error) { return r, nil }

// Pods without an attachment are reported once: those of this node that run with a network of their own.
func TestWatchPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := func(name string, change func(*model.Pod)) model.Pod {
			p := model.Pod{Namespace: "shop", Name: name, UID: name, Node: "n1", Phase: "Running"}
			change(&p)
			return p
		}
		same := func(*model.Pod) {}
		cluster := &model.Cluster{Self: "n1", Pods: []model.Pod{
			pod("attached", same), pod("early", same), pod("host", func(p *model.Pod) { p.HostNetwork = true }),
			pod("other", func(p *model.Pod) { p.Node = "n2" }), pod("pending", func(p *model.Pod) { p.Phase = "Pending" }),
		}}
		var rec attach.Record
		rec.Request.IfName = "eth0"
		rec.Request.Args = [][2]string{{"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", "attached"}}
		synced := make(chan struct{})
		var seen []string
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- WatchPods(ctx, PodsConfig{
				Cluster: func() *model.Cluster { return cluster }, Synced: synced, Records: records{rec},
				Event: func(_ context.Context, pod model.PodRef, e model.Event) error {
					seen = append(seen, pod.Name+" "+e.Reason)
					return nil
				},
				Log: slog.New(slog.DiscardHandler), After: time.After,
			})
		}()
		time.Sleep(time.Hour)
		if len(seen) > 0 {
			t.Errorf("reported before the cluster is known: %q", seen)
		}
		close(synced)
		time.Sleep(time.Hour)
		if want := []string{"early PolicyNotEnforced"}; !slices.Equal(seen, want) {
			t.Errorf("reported %q, want %q", seen, want)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
