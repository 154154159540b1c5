// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// slow is a store whose list of pools is answered late: meanwhile something happens.
type slow struct {
	store.Objects
	meanwhile func()
}

func (s slow) List(ctx context.Context, kind store.Kind) ([]store.Object, error) {
	all, err := s.Objects.List(ctx, kind)
	if kind == store.AddressPools() {
		s.meanwhile()
	}
	return all, err
}

// TestLearnIsOvertakenByAWatch: the first ADD lists the pools by itself. What the watch has sent meanwhile is newer,
// whether it has sent everything or not.
func TestLearnIsOvertakenByAWatch(t *testing.T) {
	for _, whole := range []bool{false, true} {
		_, path := cluster(t, map[string]string{"a.yaml": poolYAML("a", "10.1.0.0/24", 28, "")})
		a := join(t, path, "a", nil)
		e := a.engine
		e.cfg.Objects = slow{a.line, func() {
			o, err := a.line.Get(t.Context(), store.AddressPools(), store.AddressPools().Key("", "a"))
			if err == nil {
				o, err = o.Edited(func(fields map[string]any) error {
					fields["spec"].(map[string]any)["disabled"] = true
					return nil
				})
			}
			if err != nil {
				t.Fatal(err)
			}
			e.state.mu.Lock()
			defer e.state.mu.Unlock()
			e.state.catalog.BeginResync()
			e.state.handlePoolEventLocked(store.Event{Type: store.Modified, Object: o})
			if whole {
				e.state.catalog.EndResync()
			}
		}}
		if err := e.clusterPools.loadPools(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.state.mu.Lock()
		if spec, _ := e.state.catalog.Get("a"); !spec.Disabled {
			t.Errorf("everything told: %v: an older answer stands in the place of what a watch has told", whole)
		}
		e.state.mu.Unlock()
	}
}

// TestGarbageOfAnUnknownPool: what GC takes away leaves no trace among the addresses whose pool is not known.
func TestGarbageOfAnUnknownPool(t *testing.T) {
	_, path := cluster(t, nil)
	a := join(t, path, "a", nil)
	addr := netip.MustParseAddr("10.1.0.5")
	for _, id := range []string{"gone", "kept"} {
		a.engine.Restore(t.Context(), []ipam.Request{a.req(calicoConf(), key(id), addr)})
		addr = addr.Next()
	}
	if err := a.engine.Allocators()[1].GC(t.Context(), ipam.Request{Network: "net"}, []model.AttachmentKey{
		key("kept"),
	}); err != nil {
		t.Fatal(err)
	}
	a.engine.state.mu.Lock()
	defer a.engine.state.mu.Unlock()
	if h := a.engine.state.unknownPool; len(h) != 1 || h[netip.MustParseAddr("10.1.0.6")].key != key("kept") {
		t.Errorf("%v is held of pools that are not known", h)
	}
}
