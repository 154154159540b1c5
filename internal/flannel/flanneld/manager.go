// SPDX-License-Identifier: Apache-2.0

package flanneld

import (
	"context"
	"net/netip"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
)

// manager assigns subnets: Kubernetes or etcd.
type manager interface {
	// netConf is the network's configuration as text.
	netConf(ctx context.Context) ([]byte, error)
	// external returns the node's external addresses that are configured there; they precede those of the flags.
	external(ctx context.Context) ([]netip.Addr, error)
	// acquire gets the node its subnets.
	acquire(ctx context.Context, ask request) (grant, error)
	// Watch sends the nodes, as a source of facts.
	Watch(ctx context.Context) (<-chan store.Event, error)
	// publish publishes this node to the other nodes, as soon as possible.
	publish(p model.Published)
	// renumbered notifies the manager that the node's addresses have changed.
	renumbered()
	// keep maintains the node's subnets until ctx ends.
	keep(ctx context.Context) error
}

// request is a node's request for subnets.
type request struct {
	conf     flannel.NetConf
	underlay Underlay
	// previous are the subnets of subnet.env.
	previous []netip.Prefix
	// published returns what a node of that name and with those subnets publishes.
	published func(ctx context.Context, name string, subnets []netip.Prefix, had *model.Published) (model.Published, error)
}

// grant is what a node was assigned.
type grant struct {
	name    string
	subnets []netip.Prefix
}
