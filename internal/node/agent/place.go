// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/install"
)

// placeAgain is when a configuration that could not be put in place is tried again, placePeriod when it is looked at
// without a sign: somebody may have taken it away.
const placeAgain, placePeriod = time.Second, 30 * time.Second

// placeWait is how long the first news of the cluster may take before it is trouble.
const placeWait = 3 * time.Second

// prefixWait is how long a node may be without a prefix before that is a warning: the controller manager gives one within seconds.
const prefixWait = time.Minute

// errNoPrefix tells of a node to which the cluster gave no prefix.
var errNoPrefix = errors.New("has no prefix for pods")

// partConf is the runtime's configuration in health.
const partConf = "network configuration"

// place keeps the runtime's configuration until ctx ends. It begins when calls are answered, and what it wrote stays:
// without a configuration, or with the next vendor's, pods would start without their network while the agent is away.
func (a *agent) place(ctx context.Context) error {
	c := install.Config{ConfDir: a.cfg.Install.ConfDir}
	if err := os.MkdirAll(c.ConfDir, 0o755); err != nil { // a runtime that was just installed has none
		a.placed(nil, fmt.Errorf("install.confDir: %w", err))
	}
	if a.cfg.Socket != wire.DefaultSocket {
		c.Socket = a.cfg.Socket
	}
	if a.cfg.Network.Mode == config.ModeMultus {
		m := a.cfg.Multus
		c.Multus = &install.Multus{
			NamespaceIsolation: m.NamespaceIsolation, GlobalNamespaces: m.GlobalNamespaces, SystemNamespaces: m.SystemNamespaces,
			MultusNamespace: m.Namespace, DefaultNetworks: m.DefaultNetworks, ReadinessIndicatorFile: m.ReadinessIndicatorFile,
			NetworkDir: m.NetworkDir,
		}
		return install.Follow(ctx, c, a.placed)
	}
	if a.cfg.Network.Mode == config.ModeFlannel {
		return a.placeFlannel(ctx, c)
	}
	var changed <-chan struct{}
	if a.facts != nil {
		var unsubscribe func()
		changed, unsubscribe = a.facts.Subscribe()
		defer unsubscribe()
		select { // what is not known yet is no error
		case <-ctx.Done():
		case <-a.facts.Synced():
		case <-a.cfg.After(placeWait):
		}
	}
	for {
		wait := placePeriod
		var changes []install.Change
		own, err := a.network()
		if err == nil && own.MTU == 0 {
			own.MTU, err = a.podMTU(ctx)
		}
		if err == nil {
			changes, err = install.Cluster(ctx, c, own)
		}
		a.placed(changes, err)
		if err != nil {
			wait = placeAgain
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-a.cfg.After(wait):
		}
	}
}

// placed notes how a pass went.
func (a *agent) placed(changes []install.Change, err error) {
	for _, c := range changes {
		if c.Action != install.Unchanged {
			a.cfg.Log.Info("network configuration", "path", c.Path, "action", c.Action, "detail", c.Detail)
		}
	}
	news := a.health.Set(partConf, err)
	switch {
	case !errors.Is(err, errNoPrefix) && !errors.Is(err, errNoPools):
		a.waiting = time.Time{}
		if news && err != nil {
			a.cfg.Log.Error("network configuration", "err", err)
		}
	case a.waiting.IsZero(): // most often the controller manager is not there yet
		a.waiting = a.cfg.Now()
		what := "waiting for the node's prefix"
		if errors.Is(err, errNoPools) {
			what = "waiting for a pool of addresses"
		}
		a.cfg.Log.Info(what, "err", err)
	case !a.warned && a.cfg.Now().Sub(a.waiting) >= prefixWait:
		a.warned = true
		a.cfg.Log.Warn("the node still has no addresses: no pod gets a network", "since", a.waiting.Format(time.RFC3339), "err", err)
	}
	a.warned = a.warned && !a.waiting.IsZero()
}

// fit tells whether this node's own network can take new pods, as STATUS asks: nil where it is another vendor's, or none.
func (a *agent) fit() error {
	if a.cfg.Network.Mode != config.ModeCluster || a.facts == nil || a.facts.Cluster() == nil {
		return nil
	}
	_, err := a.network()
	return err
}

// network is weft's own network on this node, by the configuration and the cluster's facts.
func (a *agent) network() (install.Own, error) {
	n := a.cfg.Network
	own := install.Own{Name: n.Name, Node: a.cfg.Node, MTU: n.MTU, CIDRs: n.PodCIDRs, Bridge: n.Design == config.DesignBridge, Unguarded: !n.SourceGuard, Permit: n.Permit}
	if a.fromPools() {
		if a.facts != nil && a.facts.Cluster() == nil {
			return own, unknownCluster()
		}
		if own.Pools = a.poolFamilies(); len(own.Pools) == 0 || a.awaited() {
			return own, a.noPools()
		}
		return own, nil
	}
	if len(own.CIDRs) > 0 {
		return own, nil
	}
	own.CIDRs = a.podCIDRs()
	if len(own.CIDRs) == 0 && a.facts != nil && a.facts.Cluster() == nil {
		return own, unknownCluster()
	}
	if len(own.CIDRs) == 0 {
		return own, model.Faultf(model.CodeNotAvailable,
			"give the Node object podCIDRs (kube-controller-manager --allocate-node-cidrs), or set network.podCIDRs",
			"node %q %w", a.cfg.Node, errNoPrefix)
	}
	return own, nil
}

func unknownCluster() error {
	return model.Faultf(model.CodeNotAvailable, "look at the API server, and at the agent's way to it", "nothing is known of the cluster yet")
}

// podCIDRs are the prefixes that the cluster gave this node.
func (a *agent) podCIDRs() []netip.Prefix {
	if a.facts == nil || a.facts.Cluster() == nil {
		return nil
	}
	nodes := a.facts.Cluster().Nodes
	i := slices.IndexFunc(nodes, func(n model.Node) bool { return n.Name == a.cfg.Node })
	if i < 0 {
		return nil
	}
	return nodes[i].PodCIDRs
}
