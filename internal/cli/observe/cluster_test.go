// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/flow"
)

// listed counts lists by kind.
type listed struct {
	store.Objects
	nodes, services int
}

func (l *listed) List(_ context.Context, kind store.Kind) ([]store.Object, error) {
	if kind == store.Nodes() {
		l.nodes++
	} else {
		l.services++
	}
	return nil, nil
}

// The nodes of a cluster, whose agents were found by them, are not read again for their names.
func TestNodesAreReadOnce(t *testing.T) {
	node, err := store.NewObject([]byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},` +
		`"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	l, d := &listed{}, flow.NewDirectory()
	if err := addServices(t.Context(), agents.Cluster{Objects: l, Nodes: []store.Object{node}}, d); err != nil {
		t.Fatal(err)
	}
	if l.nodes != 0 || l.services != 1 {
		t.Errorf("%d lists of nodes, %d of Services", l.nodes, l.services)
	}
	if id, ok := d.Lookup("", netip.MustParseAddr("192.0.2.1"), time.Time{}); !ok || id.Name != "n1" {
		t.Errorf("%+v", id)
	}
}
