// SPDX-License-Identifier: Apache-2.0

// Package podnetwork is weft's own pod network on this node: the runtime configuration that follows from the agent's
// configuration and the cluster's objects, or the reason why there is none yet.
package podnetwork

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/controller"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/install"
	"github.com/weft-net/weft/internal/node/membership"
)

var (
	// ErrNoPools is the error of a cluster without a pool for pods.
	ErrNoPools = errors.New("no pool for the cluster's pods")
	// ErrNoPrefix is the error of a node without a podCIDR.
	ErrNoPrefix = errors.New("has no podCIDR")
)

// Config configures a Network.
type Config struct {
	Network config.Network
	Node    membership.Node
	// Cluster returns the current snapshot, nil before it is known. The function is nil where there is no cluster.
	Cluster func() *model.Cluster
	// ControllerApart reports that the controller, not the agents, creates pools.
	ControllerApart bool
}

// Network is weft's own pod network on this node.
type Network struct{ cfg Config }

// New returns a Network.
func New(cfg Config) *Network { return &Network{cfg} }

// FromPools reports whether pods of weft's own network get addresses from blocks of pools.
func (n *Network) FromPools() bool { return n.cfg.Network.FromPools() }

// unknown reports whether there is a cluster whose snapshot is not known yet.
func (n *Network) unknown() bool { return n.cfg.Cluster != nil && n.cfg.Cluster() == nil }

// Check refuses pools where there is no cluster to share them.
func (n *Network) Check() error {
	if !n.FromPools() || n.cfg.Cluster != nil {
		return nil
	}
	return model.Errorf(model.CodeInvalidConf, "set kubernetes.inCluster, kubernetes.kubeconfig or storeDir",
		"network.pools: pools need a cluster whose nodes share them")
}

// PodCIDRs returns the node's podCIDRs: those of the configuration, else those of the Node object.
func (n *Network) PodCIDRs() []netip.Prefix {
	if len(n.cfg.Network.PodCIDRs) > 0 {
		return n.cfg.Network.PodCIDRs
	}
	return n.cfg.Node.PodCIDRs()
}

// Fit returns nil if this node's own network can take new pods, for STATUS. It is nil if the network is another
// vendor's, or there is none.
func (n *Network) Fit() error {
	if n.cfg.Network.Mode != config.ModeCluster || n.cfg.Cluster == nil || n.unknown() {
		return nil
	}
	_, err := n.Own()
	return err
}

// Own returns the node's own network.
func (n *Network) Own() (install.Own, error) {
	c := n.cfg.Network
	own := install.Own{
		Name: c.Name, Node: n.cfg.Node.Name, MTU: c.MTU, CIDRs: c.PodCIDRs, Bridge: c.Design == config.DesignBridge,
		Unguarded: !c.SourceGuard, DADTimeout: time.Duration(c.DADTimeout), Permit: c.Permit,
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
	return own, model.Errorf(model.CodeNotAvailable,
		"assign podCIDRs to the Node object (kube-controller-manager --allocate-node-cidrs), or set network.podCIDRs",
		"node %q %w", n.cfg.Node.Name, ErrNoPrefix)
}

func unknownCluster() error {
	return model.Errorf(model.CodeNotAvailable, "check the API server, and the agent's connection to it",
		"the cluster's objects are not known yet")
}

// awaited reports whether one of the configuration's pools is about to be created: pods that start before would lack an
// address family.
func (n *Network) awaited() bool {
	return slices.ContainsFunc(n.cfg.Network.Pools, func(p config.Pool) bool {
		there, inTheWay := controller.FindPool(n.cfg.Cluster().Pools, p.Model())
		return !there && inTheWay == ""
	})
}

// families returns the address families (4, 6) of the cluster's pools that pods get addresses from by default.
func (n *Network) families() []int {
	if n.cfg.Cluster == nil || n.unknown() {
		return nil
	}
	return model.PoolFamilies(n.cfg.Cluster().Pools, func(p model.AddressPool) bool {
		return p.AssignmentMode == model.AssignAutomatic && !p.Disabled && !p.Deleted && p.Allows(model.UseWorkload)
	})
}

// Plugins returns the plugin configurations of weft's own network if its addresses are from pools.
func (n *Network) Plugins() []json.RawMessage {
	if n.cfg.Network.Mode != config.ModeCluster || !n.FromPools() {
		return nil
	}
	own, err := n.Own()
	if err != nil {
		return nil // cniconf reports it
	}
	conf, err := own.Plugin()
	if err != nil {
		return nil
	}
	return []json.RawMessage{conf}
}

// noPools returns the error of a cluster without pools, with a hint on their creation.
func (n *Network) noPools() error {
	var names []string
	for _, p := range n.cfg.Network.Pools {
		names = append(names, p.Model().Name)
	}
	hint := "create an AddressPool with an assignmentMode, or set network.pools"
	if len(names) > 0 {
		hint = "the agents create " + strings.Join(names, ", ") + "; check their logs"
		if n.cfg.ControllerApart {
			hint = "the controller creates " + strings.Join(names, ", ") + "; check the Deployment weft-controller and its log"
		}
	}
	return model.Errorf(model.CodeNotAvailable, hint, "there is %w", ErrNoPools)
}
