// SPDX-License-Identifier: Apache-2.0

// Package podnet is weft's own pod network on this node: which configuration the runtime gets, by the agent's
// configuration and the cluster's facts, and why there is none yet.
package podnet

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/controller"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/install"
	"github.com/weft-net/weft/internal/node/membership"
)

var (
	// ErrNoPools is the error of a cluster without a pool.
	ErrNoPools = errors.New("no pool for the cluster's pods")
	// ErrNoPrefix is the error of a node to which the cluster gave no prefix.
	ErrNoPrefix = errors.New("has no prefix for pods")
)

// Config is a Network's.
type Config struct {
	Network config.Network
	Node    membership.Node
	// Cluster is the current snapshot, nil before it is known. The function is nil where there is no cluster.
	Cluster func() *model.Cluster
	// Apart reports that the controller, not the agents, makes pools.
	Apart bool
}

// Network is the pod network of weft's own on this node.
type Network struct{ cfg Config }

// New returns a Network.
func New(cfg Config) *Network { return &Network{cfg} }

// FromPools reports whether pods of weft's own network are numbered from blocks of pools.
func (n *Network) FromPools() bool { return n.cfg.Network.FromPools() }

// unknown reports whether there is a cluster of which nothing is known yet.
func (n *Network) unknown() bool { return n.cfg.Cluster != nil && n.cfg.Cluster() == nil }

// Check refuses pools where there is no cluster to share them.
func (n *Network) Check() error {
	if !n.FromPools() || n.cfg.Cluster != nil {
		return nil
	}
	return model.Faultf(model.CodeInvalidConf, "set kubernetes.inCluster, kubernetes.kubeconfig or storeDir",
		"network.pools: pools need a cluster whose nodes share them")
}

// PodCIDRs are the node's prefixes: those of the configuration, else those that the cluster gave it.
func (n *Network) PodCIDRs() []netip.Prefix {
	if len(n.cfg.Network.PodCIDRs) > 0 {
		return n.cfg.Network.PodCIDRs
	}
	return n.cfg.Node.PodCIDRs()
}

// Fit reports whether this node's own network can take new pods, as STATUS asks: nil where it is another vendor's, or
// none.
func (n *Network) Fit() error {
	if n.cfg.Network.Mode != config.ModeCluster || n.cfg.Cluster == nil || n.unknown() {
		return nil
	}
	_, err := n.Own()
	return err
}

// Own is the node's own network.
func (n *Network) Own() (install.Own, error) {
	c := n.cfg.Network
	own := install.Own{
		Name: c.Name, Node: n.cfg.Node.Name, MTU: c.MTU, CIDRs: c.PodCIDRs, Bridge: c.Design == config.DesignBridge,
		Unguarded: !c.SourceGuard, Permit: c.Permit,
	}
	if n.FromPools() {
		if n.unknown() {
			return own, unknownCluster()
		}
		if own.Pools = n.families(); len(own.Pools) == 0 || n.awaited() {
			return own, n.noPools()
		}
		return own, nil
	}
	if own.CIDRs = n.PodCIDRs(); len(own.CIDRs) > 0 {
		return own, nil
	}
	if n.unknown() {
		return own, unknownCluster()
	}
	return own, model.Faultf(model.CodeNotAvailable,
		"give the Node object podCIDRs (kube-controller-manager --allocate-node-cidrs), or set network.podCIDRs",
		"node %q %w", n.cfg.Node.Name, ErrNoPrefix)
}

func unknownCluster() error {
	return model.Faultf(model.CodeNotAvailable, "look at the API server, and at the agent's way to it",
		"nothing is known of the cluster yet")
}

// awaited reports whether one of the configuration's pools is about to be made: pods that come before would lack a
// family.
func (n *Network) awaited() bool {
	return slices.ContainsFunc(n.cfg.Network.Pools, func(p config.Pool) bool {
		there, inTheWay := controller.FindPool(n.cfg.Cluster().Pools, p.Model())
		return !there && inTheWay == ""
	})
}

// families are the families (4, 6) of which the cluster's pools have addresses for pods that do not ask for one.
func (n *Network) families() []int {
	if n.cfg.Cluster == nil || n.unknown() {
		return nil
	}
	return model.PoolFamilies(n.cfg.Cluster().Pools, func(p model.AddressPool) bool {
		return p.AssignmentMode == model.AssignAutomatic && !p.Disabled && !p.Deleted && p.Allows(model.UseWorkload)
	})
}

// Plugins are the plugin objects of weft's own network whose addresses are of pools.
func (n *Network) Plugins() []json.RawMessage {
	if n.cfg.Network.Mode != config.ModeCluster || !n.FromPools() {
		return nil
	}
	own, err := n.Own()
	if err != nil {
		return nil // the writer of the configuration says so
	}
	conf, err := own.Plugin()
	if err != nil {
		return nil
	}
	return []json.RawMessage{conf}
}

// noPools says that there is nothing yet to number pods from.
func (n *Network) noPools() error {
	var names []string
	for _, p := range n.cfg.Network.Pools {
		names = append(names, p.Model().Name)
	}
	hint := "make an AddressPool with an assignmentMode, or set network.pools"
	if len(names) > 0 {
		hint = "the agents make " + strings.Join(names, ", ") + "; look at their logs"
		if n.cfg.Apart {
			hint = "the controller makes " + strings.Join(names, ", ") + "; look at the Deployment weft-controller and its log"
		}
	}
	return model.Faultf(model.CodeNotAvailable, hint, "there is %w", ErrNoPools)
}
