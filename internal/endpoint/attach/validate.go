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

// validate refuses a list that can never be added, before anything is touched: every plugin is asked, and every program
// that will be executed is there.
func (a *Attacher) validate(job Job) error {
	if len(job.Network.Plugins) == 0 {
		return model.Faultf(model.CodeInvalidConf, "", "network %q: no plugins", job.Network.Name)
	}
	if err := job.Request.CheckVM(); err != nil {
		return err
	}
	for i, conf := range job.Network.Plugins {
		err := a.validatePlugin(job, conf)
		if err == nil {
			err = a.checkKeeps(job.Request, conf)
		}
		if err != nil {
			if last := len(job.Network.Plugins) - 1; last == 0 || last == 1 && job.Network.Plugins[last].Type == plugin.DefaultRouteType {
				return err // the configuration has one plugin
			}
			return fmt.Errorf("network %q: plugins[%d]: %w", job.Network.Name, i, err)
		}
	}
	return nil
}

func (a *Attacher) validatePlugin(job Job, conf model.PluginConf) error {
	p := a.cfg.Planners[conf.Type]
	if p == nil {
		_, err := a.cfg.Exec.Find(conf.Type, job.Request.CNIPath)
		return err
	}
	if a.known.get(conf).valid {
		return nil
	}
	if err := p.Validate(conf); err != nil {
		return err
	}
	typ, err := a.ipamType(conf)
	if err != nil {
		return err
	}
	if alloc := a.cfg.Allocators[typ]; alloc != nil || typ == "" {
		if alloc != nil {
			err = alloc.Validate(conf.Raw)
		}
		a.known.set(conf, func(c *knownConf) { c.valid = err == nil })
		return err
	}
	_, err = a.cfg.Exec.Find(typ, job.Request.CNIPath)
	var f *model.Fault
	if errors.As(err, &f) {
		return model.Faultf(f.Code, f.Hint, "ipam.type %s", f.Msg)
	}
	return err
}

// checkKeeps refuses an IPAM that cannot keep the addresses of a virtual machine, where they have to stay.
func (a *Attacher) checkKeeps(r model.Request, conf model.PluginConf) error {
	vm := r.VM()
	if vm == nil || r.Keeps() != model.KeepAlways {
		return nil
	}
	typ, err := a.ipamType(conf)
	if err != nil || typ == "" {
		return err
	}
	why := "it knows nothing of virtual machines"
	if k := a.ofIPAM(typ).Keep; k != nil {
		if why = k.Keeps(ask(r, conf)); why == "" {
			return nil
		}
	}
	return model.Faultf(model.CodeInvalidConf, `take them from pools (docs/ipam.md), or leave the annotation weft.dev/keep-vm-address: "true" out`,
		"ipam.type %q cannot keep the addresses of virtual machine %s: %s", typ, vm, why)
}

// can is what the planner of a plugin can do beside planning; of a foreign one it is nothing.
func (a *Attacher) can(conf model.PluginConf) plugin.Capabilities {
	if p := a.cfg.Planners[conf.Type]; p != nil {
		return p.Capabilities()
	}
	return plugin.Capabilities{}
}

// ofIPAM is what the allocator of a type can do beside giving; of a foreign one it is nothing.
func (a *Attacher) ofIPAM(typ string) ipam.Capabilities {
	if alloc := a.cfg.Allocators[typ]; alloc != nil {
		return alloc.Capabilities()
	}
	return ipam.Capabilities{}
}

// ipamType is the type of a built-in plugin's IPAM section, empty when it has none.
func (a *Attacher) ipamType(conf model.PluginConf) (string, error) {
	p := a.cfg.Planners[conf.Type]
	if p == nil {
		return "", nil
	}
	if c := a.known.get(conf); c.typed {
		return c.ipam, nil
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
	a.known.set(conf, func(c *knownConf) { c.typed, c.ipam = true, s.Type })
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
func (a *Attacher) wishes(r model.Request, conf model.PluginConf) (model.AddressWishes, error) {
	if of := a.can(conf).Wishes; of != nil {
		return of(conf, r)
	}
	return model.AddressWishes{}, nil
}
