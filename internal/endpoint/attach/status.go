// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/endpoint/foreign"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// Status tells whether an ADD to the network could succeed. It changes nothing.
func (a *Attacher) Status(ctx context.Context, job Job) error {
	job, err := a.unfold(job)
	if err == nil {
		err = a.validate(job)
	}
	if err != nil {
		return notAvailable(err)
	}
	for _, conf := range job.Network.Plugins {
		if a.cfg.Planners[conf.Type] == nil {
			if err := a.foreignStatus(ctx, job, conf, conf.Type); err != nil {
				return err
			}
			continue
		}
		if err := a.ready(ctx, conf); err != nil {
			return notAvailable(err)
		}
		typ, err := a.ipamType(conf)
		if err != nil {
			return notAvailable(err)
		}
		if typ == "" {
			continue
		}
		if alloc := a.cfg.Allocators[typ]; alloc != nil {
			err = notAvailable(alloc.Status(ctx, ipam.Ask{Conf: conf.Raw, Network: job.Network.Name}))
		} else {
			err = a.foreignStatus(ctx, job, conf, typ)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *Attacher) ready(ctx context.Context, conf model.PluginConf) error {
	p := a.can(conf).Readiness
	if p == nil {
		return nil
	}
	answers, err := (kernel.Spaces{Host: a.cfg.Host}).Observe(ctx, p.ReadyQueries(conf))
	if err != nil {
		return err
	}
	return p.Ready(plugin.Input{Conf: conf, Answers: answers})
}

func (a *Attacher) foreignStatus(ctx context.Context, job Job, conf model.PluginConf, typ string) error {
	if !cni.AtLeast(job.Network.CNIVersion, "1.1.0") {
		return nil
	}
	stdin, err := cni.WithPrev(conf, job.Network.CNIVersion, nil)
	if err != nil {
		return err
	}
	_, err = a.cfg.Exec.Run(ctx, foreign.Call{Verb: cni.Status, Type: typ, Request: job.Request, Conf: stdin})
	return err
}

// notAvailable gives an error STATUS's code for "no ADD can succeed".
func notAvailable(err error) error {
	var f *model.Fault
	if !errors.As(err, &f) || f.Code == model.CodeNotAvailable || f.Code == model.CodeLimited {
		return err
	}
	return model.Faultf(model.CodeNotAvailable, f.Hint, "%s", f.Msg)
}
