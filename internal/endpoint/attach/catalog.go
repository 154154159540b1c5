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

// catalog is what can be said of a plugin's configuration by itself: which planner and which allocator are for it,
// whether they find it good, and what they can do beside planning and giving.
type catalog struct {
	planners   map[string]plugin.Planner
	allocators map[string]ipam.Allocator
	delegates  *delegator // knows which other programs there are
	known      known
}

// validate refuses a list that can never be added, before anything is touched: every plugin is asked, and every program
// that will be executed is there.
func (c *catalog) validate(job Job) error {
	if len(job.Network.Plugins) == 0 {
		return model.Faultf(model.CodeInvalidConf, "", "network %q: no plugins", job.Network.Name)
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
	if c.known.get(conf).valid {
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
		c.known.set(conf, func(k *knownConf) { k.valid = err == nil })
		return err
	}
	err = c.delegates.find(typ, job.Request.CNIPath)
	var f *model.Fault
	if errors.As(err, &f) {
		return model.Faultf(f.Code, f.Hint, "ipam.type %s", f.Msg)
	}
	return err
}

// checkKeeps refuses an IPAM that cannot keep the addresses of a virtual machine, where they have to stay.
func (c *catalog) checkKeeps(r model.Request, conf model.PluginConf) error {
	vm := r.VM()
	if vm == nil || r.Keeps() != model.KeepAlways {
		return nil
	}
	typ, err := c.ipamType(conf)
	if err != nil || typ == "" {
		return err
	}
	why := "it knows nothing of virtual machines"
	if k := c.ofIPAM(typ).Keep; k != nil {
		if why = k.Keeps(ask(r, conf)); why == "" {
			return nil
		}
	}
	return model.Faultf(model.CodeInvalidConf,
		`take them from pools (docs/ipam.md), or leave the annotation weft.dev/keep-vm-address: "true" out`,
		"ipam.type %q cannot keep the addresses of virtual machine %s: %s", typ, vm, why)
}

// decoded is a configuration as its planner has read it, once for all calls.
func (c *catalog) decoded(p plugin.Planner, conf model.PluginConf) (*plugin.Decoded, error) {
	if k := c.known.get(conf); k.decoded != nil {
		return k.decoded, nil
	}
	d, err := plugin.Decode(p, conf)
	if err != nil {
		return nil, err
	}
	c.known.set(conf, func(k *knownConf) { k.decoded = d })
	return d, nil
}

// input is what a planner is asked about a built-in plugin's configuration. One that cannot be planned is handed over
// as it stands: the planner says again what is wrong with it, or goes by as much of it as is valid.
func (c *catalog) input(conf model.PluginConf, r model.Request) plugin.Input {
	in := plugin.Input{Conf: conf, Request: r}
	if d, err := c.decoded(c.planners[conf.Type], conf); err == nil {
		in.Decoded = d
	}
	return in
}

// can is what the planner of a plugin can do beside planning; of a foreign one it is nothing.
func (c *catalog) can(conf model.PluginConf) plugin.Capabilities {
	if p := c.planners[conf.Type]; p != nil {
		return p.Capabilities()
	}
	return plugin.Capabilities{}
}

// ofIPAM is what the allocator of a type can do beside giving; of a foreign one it is nothing.
func (c *catalog) ofIPAM(typ string) ipam.Capabilities {
	if alloc := c.allocators[typ]; alloc != nil {
		return alloc.Capabilities()
	}
	return ipam.Capabilities{}
}

// ipamType is the type of a built-in plugin's IPAM section, empty when it has none.
func (c *catalog) ipamType(conf model.PluginConf) (string, error) {
	p := c.planners[conf.Type]
	if p == nil {
		return "", nil
	}
	if k := c.known.get(conf); k.typed {
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
		return "", model.Faultf(model.CodeDecode, "", "plugin %s: ipam: %w", conf.Type, err)
	}
	c.known.set(conf, func(k *knownConf) { k.typed, k.ipam = true, s.Type })
	return s.Type, nil
}

// ask is what an allocator is asked for a plugin of a request.
func ask(r model.Request, conf model.PluginConf) ipam.Ask {
	q := ipam.Ask{
		Conf: conf.Raw, Network: r.Network, ContainerID: r.ContainerID, IfName: r.IfName, Args: r.Args, Netns: r.Netns,
	}
	if vm := r.VM(); vm != nil && r.Keeps() != model.KeepNever {
		q.VM, q.Incoming, q.Unproven = vm, r.Incoming(), r.Origin != nil && r.Origin.VM != nil
	}
	return q
}

// wishes are what the request's pod says of the addresses that a plugin's IPAM gives.
func (c *catalog) wishes(r model.Request, conf model.PluginConf) (model.AddressWishes, error) {
	if of := c.can(conf).Wishes; of != nil {
		return of(c.input(conf, r))
	}
	return model.AddressWishes{}, nil
}

// plain reports whether a job can be planned beside others: everything is built in and its addresses are known before.
// apart is one that has nothing of the node in common with others: no bridge, no table.
func (c *catalog) plain(job Job) (apart, plain bool) {
	apart = true
	if len(job.saves) > 0 {
		return false, false
	}
	for _, conf := range job.Network.Plugins {
		switch conf.Type {
		case "macvlan", "ipvlan", "dummy":
		case "ptp", "bridge", plugin.CalicoType, "portmap", "bandwidth", "firewall", "tuning":
			apart = false
		default: // unknown, or one that asks the kernel for what neighbors are about to change
			return false, false
		}
		if c.planners[conf.Type] == nil {
			return false, false
		}
		typ, err := c.ipamType(conf)
		if err != nil || c.late(typ) {
			return false, false
		}
	}
	return apart, true
}

// builtinTypes are the types of the job's plugins that are built in: what a foreign one left is that one's to take.
func (c *catalog) builtinTypes(job Job) []string {
	var types []string
	for _, conf := range job.Network.Plugins {
		if c.planners[conf.Type] != nil {
			types = append(types, conf.Type)
		}
	}
	return types
}

// late reports whether an IPAM type is asked when the interface exists and is up: an allocator that sends packets, and
// every foreign one, of which nobody knows what it needs.
func (c *catalog) late(typ string) bool {
	if typ == "" {
		return false
	}
	alloc := c.allocators[typ]
	if alloc == nil {
		return true
	}
	return alloc.Capabilities().NeedsLink
}
