// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
)

// status reports whether an ADD to the network could succeed. It changes nothing.
func (c *checker) status(ctx context.Context, job Job) error {
	job, err := c.resolver.resolve(job)
	if err == nil {
		err = c.catalog.validate(job)
	}
	if err != nil {
		return notAvailable(err)
	}
	for _, conf := range job.Network.Plugins {
		if c.catalog.planners[conf.Type] == nil {
			if err := c.delegates.status(ctx, job, conf, conf.Type); err != nil {
				return err
			}
			continue
		}
		if err := c.ready(ctx, conf); err != nil {
			return notAvailable(err)
		}
		typ, err := c.catalog.ipamType(conf)
		if err != nil {
			return notAvailable(err)
		}
		if typ == "" {
			continue
		}
		if alloc := c.catalog.allocators[typ]; alloc != nil {
			err = notAvailable(alloc.Status(ctx, ipam.Request{Conf: conf.Raw, Network: job.Network.Name}))
		} else {
			err = c.delegates.status(ctx, job, conf, typ)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) ready(ctx context.Context, conf model.PluginConf) error {
	p := c.catalog.capabilities(conf).Readiness
	if p == nil {
		return nil
	}
	in := c.catalog.input(conf, model.Request{})
	var err error
	if in.Answers, err = (kernel.Spaces{Host: c.host}).Observe(ctx, p.ReadyQueries(in)); err != nil {
		return err
	}
	return p.Ready(in)
}

// notAvailable sets the STATUS code of an error for "no ADD can succeed".
func notAvailable(err error) error {
	var f *model.Error
	if !errors.As(err, &f) || f.Code == model.CodeNotAvailable || f.Code == model.CodeLimited {
		return err
	}
	return model.Errorf(model.CodeNotAvailable, f.Hint, "%s", f.Msg)
}
