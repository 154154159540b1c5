// SPDX-License-Identifier: Apache-2.0

package unrecorded_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/unrecorded"
	"github.com/weft-net/weft/internal/state"
)

// empty is a datastore without objects.
type empty struct{ store.Objects }

func (empty) Get(_ context.Context, _ store.Kind, key store.Key) (store.Object, error) {
	return store.Object{}, fmt.Errorf("%s: %w", key, store.ErrNotFound)
}

// enforcer writes what it does into said; fail is how many calls of Admit fail.
type enforcer struct {
	said []string
	fail int
}

func (e *enforcer) Admit(_ context.Context, all ...model.WorkloadEndpoint) error {
	if e.fail--; e.fail >= 0 {
		return errors.New("not now")
	}
	e.said = append(e.said, "admit "+all[0].Pod.Name)
	return nil
}

func (e *enforcer) Attached(keys ...model.AttachmentKey) {
	e.said = append(e.said, "attached "+keys[0].ContainerID)
}

func (e *enforcer) Release(_ context.Context, key model.AttachmentKey) error {
	e.said = append(e.said, "release "+key.ContainerID)
	return nil
}

// TestOwners: the rules wait for the pods of all interfaces, but not forever; a pod that becomes known later is enforced
// then, and again if that fails; an interface that is gone is released, and one without a pod is forgotten. While the
// links of the node cannot be read none counts as gone.
func TestOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := func(name, addr string) unrecorded.Interface {
			return unrecorded.Interface{
				Attachment: model.AttachmentKey{Network: "weft", ContainerID: "id-" + name, IfName: "eth0"}, HostLink: "cali" + name,
				HostEnd: model.HostEndRouted, Addrs: []netip.Addr{netip.MustParseAddr(addr)},
			}
		}
		pod := func(name, addr string) model.Pod {
			return model.Pod{Namespace: "shop", Name: name, Node: "n1", IPs: []netip.Addr{netip.MustParseAddr(addr)}}
		}
		cluster := &model.Cluster{Pods: []model.Pod{pod("early", "10.0.0.1")}}
		links := []state.Link{{Name: "caliearly"}, {Name: "calisoon"}, {Name: "calilate"}, {Name: "calinone"}}
		var unreadable error
		synced := make(chan struct{})
		close(synced)
		p := unrecorded.NewPolicies(unrecorded.Config{
			Node: "n1", Cluster: func() *model.Cluster { return cluster }, Synced: synced, Objects: empty{},
			Links: func(context.Context) ([]state.Link, error) { return links, unreadable },
			Log:   slog.New(slog.DiscardHandler), After: time.After,
		}, []unrecorded.Interface{
			one("early", "10.0.0.1"), one("soon", "10.0.0.2"), one("late", "10.0.0.3"), one("none", "10.0.0.4"),
		})
		start := time.Now()
		time.AfterFunc(3*time.Second, func() { cluster = &model.Cluster{Pods: append(cluster.Pods, pod("soon", "10.0.0.2"))} })
		var names []string
		for _, e := range p.Resolve(t.Context()) {
			names = append(names, e.Pod.Name)
		}
		if diff := cmp.Diff([]string{"early", "soon"}, names); diff != "" || time.Since(start) > 11*time.Second {
			t.Errorf("after %v: %s", time.Since(start), diff)
		}

		at := &enforcer{fail: 1}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx, at) }()
		says := func(when string, want ...string) {
			t.Helper()
			time.Sleep(6 * time.Second)
			synctest.Wait()
			if diff := cmp.Diff(want, at.said); diff != "" {
				t.Errorf("%s: %s", when, diff)
			}
			at.said = nil
		}
		says("at first")
		cluster = &model.Cluster{Pods: append(cluster.Pods, pod("late", "10.0.0.3"))}
		says("the first attempt fails")
		says("the second does not", "admit late", "attached id-late")
		unreadable, links = errors.New("interrupted"), links[1:3]
		says("links cannot be read")
		unreadable = nil
		says("a pod and an interface without one are gone", "release id-early")
		links = nil
		says("all are gone", "release id-soon", "release id-late")
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
