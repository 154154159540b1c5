// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/membership"
)

// TestOwn: the configuration's podCIDRs take precedence over the cluster's; without either, or before the cluster is
// known, there is no network, and the error has the reason.
func TestOwn(t *testing.T) {
	configured, assigned := netip.MustParsePrefix("10.9.0.0/24"), netip.MustParsePrefix("10.1.0.0/24")
	known := &model.Cluster{Nodes: []model.Node{{Name: "n1", PodCIDRs: []netip.Prefix{assigned}}}}
	for _, tc := range []struct {
		name      string
		cidrs     []netip.Prefix
		addresses config.Addresses
		cluster   func() *model.Cluster
		want      string
		err       error
	}{
		{
			name: "configured", cidrs: []netip.Prefix{configured}, cluster: func() *model.Cluster { return known },
			want: "[10.9.0.0/24]",
		},
		{name: "assigned", cluster: func() *model.Cluster { return known }, want: "[10.1.0.0/24]"},
		{name: "no cluster", err: ErrNoPrefix},
		{name: "not assigned", cluster: func() *model.Cluster { return &model.Cluster{} }, err: ErrNoPrefix},
		{name: "no pool", addresses: config.AddressesPools, cluster: func() *model.Cluster { return known }, err: ErrNoPools},
	} {
		c := config.Default().Network
		c.Mode, c.PodCIDRs = config.ModeCluster, tc.cidrs
		if tc.addresses != "" {
			c.Addresses = tc.addresses
		}
		n := New(Config{Network: c, Node: membership.Node{Name: "n1", Cluster: tc.cluster}, Cluster: tc.cluster})
		own, err := n.Own()
		if tc.err != nil && !errors.Is(err, tc.err) || tc.err == nil && (err != nil || fmt.Sprint(own.CIDRs) != tc.want) {
			t.Errorf("%s: %v, %v", tc.name, own.CIDRs, err)
		}
	}
	unknown := func() *model.Cluster { return nil }
	n := New(Config{
		Network: config.Network{Mode: config.ModeCluster}, Node: membership.Node{Name: "n1", Cluster: unknown},
		Cluster: unknown,
	})
	if _, err := n.Own(); err == nil || errors.Is(err, ErrNoPrefix) {
		t.Errorf("before the cluster is known: %v", err)
	}
	if err := n.Fit(); err != nil {
		t.Errorf("STATUS before the cluster is known: %v", err)
	}
}

// TestCheck: pools are refused where there is no cluster to share them.
func TestCheck(t *testing.T) {
	n := New(Config{Network: config.Network{Mode: config.ModeCluster, Addresses: config.AddressesPools}})
	if err := n.Check(); err == nil {
		t.Error("pools without a cluster are accepted")
	}
}
