// SPDX-License-Identifier: Apache-2.0

package flanneld

import (
	"context"
	"net/netip"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
)

// manager is where subnets come from: Kubernetes or etcd.
type manager interface {
	// netConf is the network's configuration as text.
	netConf(ctx context.Context) ([]byte, error)
	// external are the node's addresses for others that are noted there; they come before those of the flags.
	external(ctx context.Context) ([]netip.Addr, error)
	// acquire gets the node its subnets.
	acquire(ctx context.Context, ask request) (grant, error)
	// Watch tells of the nodes, as a source of facts.
	Watch(ctx context.Context) (<-chan store.Event, error)
	// publish has the other nodes know of this one, as soon as possible.
	publish(p model.Published)
	// renumbered says that the node has other addresses.
	renumbered()
	// keep keeps what the node was given, until ctx ends.
	keep(ctx context.Context) error
}

// request is what a node asks for.
type request struct {
	conf     flannel.NetConf
	underlay Underlay
	// previous are the subnets of subnet.env.
	previous []netip.Prefix
	// published says what a node of that name and with those subnets publishes.
	published func(ctx context.Context, name string, subnets []netip.Prefix, had *model.Published) (model.Published, error)
}

// grant is what a node was given.
type grant struct {
	name    string
	subnets []netip.Prefix
}
