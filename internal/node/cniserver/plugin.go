// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/multinet"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// parseCall parses a call. A call of an IPAM plugin is for a network of its own: the network of its name may have
// another attachment of the same container.
func parseCall(r wire.Request) (cni.Call, error) {
	call, err := cni.ParseCall(r.Getenv, r.Stdin())
	if name := r.Getenv(wire.PluginVar); name != "" && name != plugin.CalicoType {
		call.Request.Network = plugin.IPAMNetwork(call.Request.Network)
	}
	return call, err
}

// servePlugin handles a call in which weft-cni was executed under the name of a plugin that is built into the agent: by a
// runtime, in a chain with other plugins, or by another vendor's plugin, as its IPAM plugin.
func (vs *verbs) servePlugin(c *call, call cni.Call, ns *netns.NS, name string) ([]byte, error) {
	if !slices.Contains(vs.cfg.PluginNames, name) {
		_, found, err := vs.cfg.Records.Get(call.Request.Key())
		if call.Command != cni.Del {
			return nil, model.Errorf(unserved(call.Command), "docs/tasks/install.md says when it does",
				"plugin %q: the agent of this node does not serve this plugin", name)
		}
		if !found || err != nil {
			return nil, err
		}
	}
	if call.Command == cni.Add {
		if err := vs.queue.drainFor(c.ctx, call.Request); err != nil {
			return nil, err
		}
	}
	a, err := vs.networks.SinglePlugin(c.ctx, call, name)
	if err != nil {
		return nil, err
	}
	all, j := []multinet.Attachment{a}, job(a, ns)
	switch call.Command {
	case cni.Add:
		results, err := vs.attachAll(c.ctx, all, ns, c.abandoned)
		if err != nil {
			return nil, err
		}
		return cni.FormatResult(results[0], call.Request.CNIVersion)
	case cni.Del:
		return nil, vs.detachAll(c.ctx, all, ns)
	case cni.Check:
		return nil, vs.cfg.Attacher.Check(c.ctx, j)
	case cni.GC:
		return nil, vs.gcPlugin(c.ctx, call, j)
	}
	if vs.cfg.Fit != nil {
		if err := vs.cfg.Fit(); err != nil {
			return nil, err
		}
	}
	return nil, vs.cfg.Attacher.Status(c.ctx, j)
}

// unserved returns the code for a plugin that this agent never serves.
func unserved(verb string) model.Code {
	if verb == cni.Status {
		return model.CodeNotAvailable
	}
	return model.CodeInvalidConf
}

// gcPlugin releases everything of the network that no valid attachment has.
func (vs *verbs) gcPlugin(ctx context.Context, call cni.Call, j attach.Job) error {
	queued := vs.queue.collectable(call)
	if err := vs.cfg.Attacher.GC(ctx, j, call.Valid); err != nil {
		return err
	}
	vs.queue.collect(queued)
	return nil
}
