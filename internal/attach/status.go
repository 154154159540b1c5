// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/foreign"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// Status tells whether an ADD to the network could succeed. It changes nothing.
func (a *Attacher) Status(ctx context.Context, job Job) error {
	if err := a.validate(job); err != nil {
		return notAvailable(err)
	}
	for _, conf := range job.Network.Plugins {
		if a.cfg.Planners[conf.Type] == nil {
			if err := a.foreignStatus(ctx, job, conf, conf.Type); err != nil {
				return err
			}
			continue
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
