// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"bytes"
	"slices"
	"sync"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/recent"
)

// parsedNetworks are parsed configurations: a pod with eight networks would parse eight for every call.
type parsedNetworks struct{ recent recent.Cache[*parsedNetwork] }

// parsedNetwork is a network as it is configured. It is shared by calls: they change copies.
type parsedNetwork struct {
	network model.Network
	// plain is the network for plugins that get nothing of the call; yielding is the same as an additional network of a
	// pod, whose default routes are not used.
	plain, yielding func() (model.Network, error)
}

// get parses a configuration, unless it was parsed before.
func (c *parsedNetworks) get(raw []byte) (*parsedNetwork, error) {
	if p, found := c.recent.Get(raw); found {
		return p, nil
	}
	text := bytes.Clone(raw) // that of a call is a part of its whole request
	n, err := cni.ParseNetwork(text)
	if err != nil {
		return nil, err
	}
	p := &parsedNetwork{network: n}
	p.plain = sync.OnceValues(func() (model.Network, error) { return cni.Derive(n, nil, nil) })
	p.yielding = sync.OnceValues(func() (model.Network, error) {
		plain, err := p.plain()
		if err != nil {
			return plain, err
		}
		plain.Plugins = slices.Clone(plain.Plugins)
		err = withRoutes(&plain, &plugin.DefaultRouteConf{Yield: true})
		return plain, err
	})
	c.recent.Put(text, p)
	return p, nil
}

// derive is cni.Derive of the network, followed by withRoutes.
func (p *parsedNetwork) derive(caps, args map[string]any, decided *plugin.DefaultRouteConf) (model.Network, error) {
	given := func(conf model.PluginConf) bool {
		for name, declared := range conf.Capabilities {
			if _, provided := caps[name]; declared && provided {
				return true
			}
		}
		return false
	}
	if len(args) > 0 || slices.ContainsFunc(p.network.Plugins, given) {
		return p.deriveFor(caps, args, given, decided)
	}
	if decided != nil && decided.Yield && len(decided.Drop)+len(decided.Via) == 0 {
		n, err := p.yielding()
		n.Plugins = slices.Clone(n.Plugins)
		return n, err
	}
	n, err := p.plain()
	if err != nil {
		return n, err
	}
	n.Plugins = slices.Clone(n.Plugins)
	return n, withRoutes(&n, decided)
}

// deriveFor derives the plugins that get something of the call; the others are plain.
func (p *parsedNetwork) deriveFor(
	caps, args map[string]any, given func(model.PluginConf) bool, decided *plugin.DefaultRouteConf,
) (model.Network, error) {
	plain, err := p.plain()
	n := plain
	if err == nil {
		n.Plugins = slices.Clone(plain.Plugins)
	}
	for i, conf := range p.network.Plugins {
		if err != nil || len(args) == 0 && !given(conf) {
			continue
		}
		one := p.network
		one.Plugins = []model.PluginConf{conf}
		if one, err = cni.Derive(one, caps, args); err == nil {
			n.Plugins[i] = one.Plugins[0]
		}
	}
	if err != nil {
		return cni.Derive(p.network, caps, args) // its error names the plugin
	}
	return n, withRoutes(&n, decided)
}
