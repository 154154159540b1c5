// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// validate refuses a list that can never be added, before anything is touched: every plugin is asked, and every program
// that will be executed is there.
func (a *Attacher) validate(job Job) error {
	if len(job.Network.Plugins) == 0 {
		return model.Faultf(model.CodeInvalidConf, "", "network %q: no plugins", job.Network.Name)
	}
	for i, conf := range job.Network.Plugins {
		if err := a.validatePlugin(job, conf); err != nil {
			if len(job.Network.Plugins) == 1 {
				return err
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
	return ipam.Ask{
		Conf: conf.Raw, Network: r.Network, ContainerID: r.ContainerID, IfName: r.IfName, Args: r.Args, Netns: r.Netns,
	}
}
