// SPDX-License-Identifier: Apache-2.0

package poolcatalog

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/addressclaims"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
)

func pool(name, cidr string, change func(*model.AddressPool)) model.AddressPool {
	p := model.AddressPool{
		Name: name, AssignmentMode: model.AssignAutomatic,
		Regions: []model.AddressRegion{{CIDR: netip.MustParsePrefix(cidr), BlockSize: 28}},
	}
	if change != nil {
		change(&p)
	}
	return p
}

func object(t *testing.T, p model.AddressPool) store.Object {
	t.Helper()
	o, err := store.AddressPoolObject(store.Object{}, p)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// selected returns the pools that may serve a pod, or the error.
func selected(c *Catalog, req ipam.Request, claim addressclaims.Claim) string {
	req.ContainerID = "c"
	wants, err := c.Wants(poolconf.Cluster{Families: []model.IPFamily{model.IPv4}}, req, claim)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, alternatives := range wants {
		for _, w := range alternatives {
			out = append(out, strings.TrimSuffix(fmt.Sprint(w.Pool, " ", w.Addr), " invalid IP"))
		}
	}
	return strings.Join(out, ", ")
}

// TestWants: selectors decide for pods that request nothing, and not for those that request a pool or an address, or
// whose claim has one.
func TestWants(t *testing.T) {
	labels := map[string]string{"zone": "1"}
	c := New(func() (map[string]string, bool) { return labels, labels != nil }, slog.New(slog.DiscardHandler))
	c.Put(pool("all", "10.1.0.0/24", nil))
	c.Put(pool("manual", "10.2.0.0/24", func(p *model.AddressPool) { p.AssignmentMode = model.AssignManual }))
	c.Put(pool("zone2", "10.3.0.0/24", func(p *model.AddressPool) { p.NodeSelector = "zone == '2'" }))
	shop := func(req model.AddressRequest) ipam.Request { return ipam.Request{PodRequest: req} }
	claim := addressclaims.Claim{ID: "AddressClaim shop/db", Addrs: []netip.Addr{netip.MustParseAddr("10.2.0.9")}}
	for _, one := range []struct {
		name  string
		req   model.AddressRequest
		claim addressclaims.Claim
		want  string
	}{
		{"no request", model.AddressRequest{}, addressclaims.Claim{}, "all"},
		{"a pool by name", model.AddressRequest{Pools4: []string{"zone2"}}, addressclaims.Claim{}, "zone2"},
		{"a pool by its region", model.AddressRequest{Pools4: []string{"10.2.0.0/24"}}, addressclaims.Claim{}, "manual"},
		{
			"an address", model.AddressRequest{Addrs: []netip.Addr{netip.MustParseAddr("10.3.0.5")}}, addressclaims.Claim{},
			"zone2 10.3.0.5",
		},
		{"a claim", model.AddressRequest{}, claim, "manual 10.2.0.9"},
	} {
		if got := selected(c, shop(one.req), one.claim); got != one.want {
			t.Errorf("%s: %s, want %s", one.name, got, one.want)
		}
	}
	labels["zone"] = "2"
	if got := selected(c, shop(model.AddressRequest{}), addressclaims.Claim{}); got != "all, zone2" {
		t.Errorf("in zone 2: %s", got)
	}
}

// TestResync: pools that a new watch does not send are dropped at its end, and an invalid object changes nothing.
func TestResync(t *testing.T) {
	c := New(nil, slog.New(slog.DiscardHandler))
	c.AddListed([]store.Object{
		object(t, pool("a", "10.1.0.0/24", nil)), object(t, pool("b", "10.2.0.0/24", nil)),
	})
	names := func() string {
		var out []string
		for _, p := range c.All() {
			out = append(out, p.Name)
		}
		return strings.Join(out, " ")
	}
	if !c.Known() || names() != "a b" {
		t.Fatalf("after the list: %s, known %t", names(), c.Known())
	}
	c.BeginResync()
	if c.HandleEvent(store.Event{Type: store.Modified, Object: object(t, pool("b", "10.2.0.0/24", nil))}) {
		t.Error("the same pool changed the choice")
	}
	c.EndResync()
	if names() != "b" {
		t.Errorf("after a watch without a: %s", names())
	}
	invalid := object(t, pool("b", "10.2.0.0/24", nil))
	invalid.Raw = []byte(`{"spec":{"regions":7}}`)
	if c.HandleEvent(store.Event{Type: store.Modified, Object: invalid}) || names() != "b" {
		t.Errorf("after an invalid object: %s", names())
	}
	if !c.HandleEvent(store.Event{Type: store.Deleted, Object: invalid}) || names() != "" {
		t.Errorf("after a deletion: %s", names())
	}
}
