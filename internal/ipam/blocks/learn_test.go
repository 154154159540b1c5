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

// TestLearnIsOvertakenByAWatch: the first ADD asks for the pools by itself. What the watch has told while the answer
// was on its way is newer, whether it has told everything or not.
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
			e.mem.mu.Lock()
			defer e.mem.mu.Unlock()
			e.mem.catalog.begin()
			e.mem.hearPool(store.Event{Type: store.Modified, Object: o})
			if whole {
				e.mem.catalog.end()
			}
		}}
		if err := e.chooser.learn(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.mem.mu.Lock()
		if !e.mem.catalog.pools["a"].Disabled {
			t.Errorf("everything told: %v: an older answer stands in the place of what a watch has told", whole)
		}
		e.mem.mu.Unlock()
	}
}

// TestGarbageOfAnUnknownPool: what GC takes away leaves no trace among the addresses whose pool is not known.
func TestGarbageOfAnUnknownPool(t *testing.T) {
	_, path := cluster(t, nil)
	a := join(t, path, "a", nil)
	addr := netip.MustParseAddr("10.1.0.5")
	for _, id := range []string{"gone", "kept"} {
		a.engine.Restore(t.Context(), []ipam.Ask{a.ask(calicoConf(), key(id), addr)})
		addr = addr.Next()
	}
	if err := a.engine.Allocators()[1].GC(t.Context(), ipam.Ask{Network: "net"}, []model.AttachmentKey{
		key("kept"),
	}); err != nil {
		t.Fatal(err)
	}
	a.engine.mem.mu.Lock()
	defer a.engine.mem.mu.Unlock()
	if h := a.engine.mem.homeless; len(h) != 1 || h[netip.MustParseAddr("10.1.0.6")].key != key("kept") {
		t.Errorf("%v is held of pools that are not known", h)
	}
}
