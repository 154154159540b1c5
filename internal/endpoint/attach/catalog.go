// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// catalog answers questions about one plugin's configuration: its planner, its allocator, its capabilities and whether
// it is valid.
type catalog struct {
	planners   map[string]plugin.Planner
	allocators map[string]ipam.Allocator
	delegates  *delegator // finds the programs of foreign plugins
	cache      confCache
}

// validate rejects an invalid list before anything is changed: every planner and allocator validates its configuration,
// and every foreign program exists.
func (c *catalog) validate(job Job) error {
	if len(job.Network.Plugins) == 0 {
		return model.Errorf(model.CodeInvalidConf, "", "network %q: no plugins", job.Network.Name)
	}
	if err := job.Request.CheckVM(); err != nil {
		return err
	}
	for i, conf := range job.Network.Plugins {
		err := c.validatePlugin(job, conf)
		if err == nil {
			err = c.checkKeeps(job.Request, conf)
		}
		if err != nil {
			if last := len(job.Network.Plugins) - 1; last == 0 ||
				last == 1 && job.Network.Plugins[last].Type == plugin.DefaultRouteType {
				return err // the configuration has one plugin
			}
			return fmt.Errorf("network %q: plugins[%d]: %w", job.Network.Name, i, err)
		}
	}
	return nil
}

func (c *catalog) validatePlugin(job Job, conf model.PluginConf) error {
	p := c.planners[conf.Type]
	if p == nil {
		err := c.delegates.find(conf.Type, job.Request.CNIPath)
		return err
	}
	if c.cache.get(conf).valid {
		return nil
	}
	if _, err := c.decoded(p, conf); err != nil {
		return err
	}
	typ, err := c.ipamType(conf)
	if err != nil {
		return err
	}
	if alloc := c.allocators[typ]; alloc != nil || typ == "" {
		if alloc != nil {
			err = alloc.Validate(conf.Raw)
		}
		c.cache.set(conf, func(k *cachedConf) { k.valid = err == nil })
		return err
	}
	err = c.delegates.find(typ, job.Request.CNIPath)
	var f *model.Error
	if errors.As(err, &f) {
		return model.Errorf(f.Code, f.Hint, "ipam.type %s", f.Msg)
	}
	return err
}

// checkKeeps rejects an IPAM type that cannot keep the addresses of a virtual machine that requires it.
func (c *catalog) checkKeeps(r model.Request, conf model.PluginConf) error {
	vm := r.VM()
	if vm == nil || r.KeepAddress() != model.KeepAlways {
		return nil
	}
	typ, err := c.ipamType(conf)
	if err != nil || typ == "" {
		return err
	}
	why := "it does not support virtual machines"
	if k := c.ipamCapabilities(typ).Sticky; k != nil {
		if why = k.NotSticky(allocateRequest(r, conf)); why == "" {
			return nil
		}
	}
	hint := `take them from pools (docs/concepts/pools-and-blocks.md), or leave the annotation weft.dev/keep-vm-address: "true" out`
	if r.Incoming() {
		hint = "take them from pools (docs/concepts/pools-and-blocks.md); until then the virtual machine does not migrate"
	}
	return model.Errorf(model.CodeInvalidConf, hint, "ipam.type %q cannot keep the addresses of virtual machine %s: %s", typ, vm, why)
}

// decoded returns a configuration as decoded by its planner, cached for all calls.
func (c *catalog) decoded(p plugin.Planner, conf model.PluginConf) (*plugin.Decoded, error) {
	if k := c.cache.get(conf); k.decoded != nil {
		return k.decoded, nil
	}
	d, err := plugin.Decode(p, conf)
	if err != nil {
		return nil, err
	}
	c.cache.set(conf, func(k *cachedConf) { k.decoded = d })
	return d, nil
}

// input returns a planner's input for a built-in plugin. An invalid configuration is passed undecoded: the planner
// reports the error again, or uses the valid part.
func (c *catalog) input(conf model.PluginConf, r model.Request) plugin.Input {
	in := plugin.Input{Conf: conf, Request: r}
	if d, err := c.decoded(c.planners[conf.Type], conf); err == nil {
		in.Decoded = d
	}
	return in
}

// capabilities returns the optional capabilities of a plugin's planner; none for a foreign plugin.
func (c *catalog) capabilities(conf model.PluginConf) plugin.Capabilities {
	if p := c.planners[conf.Type]; p != nil {
		return p.Capabilities()
	}
	return plugin.Capabilities{}
}

// ipamCapabilities returns the optional capabilities of an IPAM type's allocator; none for a foreign one.
func (c *catalog) ipamCapabilities(typ string) ipam.Capabilities {
	if alloc := c.allocators[typ]; alloc != nil {
		return alloc.Capabilities()
	}
	return ipam.Capabilities{}
}

// ipamType returns the type of a built-in plugin's IPAM section, empty if it has none.
func (c *catalog) ipamType(conf model.PluginConf) (string, error) {
	p := c.planners[conf.Type]
	if p == nil {
		return "", nil
	}
	if k := c.cache.get(conf); k.typed {
		return k.ipam, nil
	}
	section, err := p.IPAM(conf)
	if err != nil {
		return "", err
	}
	var s struct {
		Type string `json:"type"`
	}
	if section == nil {
		section = []byte("{}")
	}
	if err := json.Unmarshal(section, &s); err != nil {
		return "", model.Errorf(model.CodeDecode, "", "plugin %s: ipam: %w", conf.Type, err)
	}
	c.cache.set(conf, func(k *cachedConf) { k.typed, k.ipam = true, s.Type })
	return s.Type, nil
}

// allocateRequest returns the allocation request for a plugin of a CNI request.
func allocateRequest(r model.Request, conf model.PluginConf) ipam.Request {
	q := ipam.Request{
		Conf: conf.Raw, Network: r.Network, ContainerID: r.ContainerID, IfName: r.IfName, Args: r.Args, Netns: r.Netns,
	}
	if vm := r.VM(); vm != nil && r.KeepAddress() != model.KeepNever {
		q.VM, q.Incoming, q.UnverifiedVM = vm, r.Incoming(), r.Origin != nil && r.Origin.VM != nil
	}
	return q
}

// requestedAddresses returns what the pod requests of its addresses by annotations.
func (c *catalog) requestedAddresses(r model.Request, conf model.PluginConf) (model.AddressRequest, error) {
	if of := c.capabilities(conf).AddressRequest; of != nil {
		return of(c.input(conf, r))
	}
	return model.AddressRequest{}, nil
}

// batchable reports whether a job can be planned in a group: all plugins are built in, and the addresses are known
// before the interface exists. apart reports whether it shares no object of the node, such as a bridge or a table.
func (c *catalog) batchable(job Job) (apart, plain bool) {
	apart = true
	if len(job.saves) > 0 {
		return false, false
	}
	for _, conf := range job.Network.Plugins {
		switch conf.Type {
		case "macvlan", "ipvlan", "dummy":
		case "ptp", "bridge", plugin.CalicoType, "portmap", "bandwidth", "firewall", "tuning":
			apart = false
		default: // foreign, or its plan depends on what the group is about to change
			return false, false
		}
		if c.planners[conf.Type] == nil {
			return false, false
		}
		typ, err := c.ipamType(conf)
		if err != nil || c.needsLink(typ) {
			return false, false
		}
	}
	return apart, true
}

// builtinTypes returns the types of the job's built-in plugins; a foreign plugin cleans up after itself.
func (c *catalog) builtinTypes(job Job) []string {
	var types []string
	for _, conf := range job.Network.Plugins {
		if c.planners[conf.Type] != nil {
			types = append(types, conf.Type)
		}
	}
	return types
}

// needsLink reports whether an IPAM type allocates only once the interface is up: an allocator that sends packets, and
// every foreign one, whose needs are unknown.
func (c *catalog) needsLink(typ string) bool {
	if typ == "" {
		return false
	}
	alloc := c.allocators[typ]
	if alloc == nil {
		return true
	}
	return alloc.Capabilities().NeedsLink
}
