// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// traces undoes what the reference plugin did, as far as its traces tell: also when the container's namespace has gone.
func (a *Attacher) traces(ctx context.Context, job Job, conf model.PluginConf) error {
	t := a.can(conf).Trace
	if t == nil {
		return nil
	}
	in := plugin.Input{Conf: conf, Request: job.Request, Chain: plugin.Chain{Prev: job.Prev}}
	spaces := kernel.Spaces{Host: a.cfg.Host}
	if job.Netns != nil {
		open, done, err := a.spaces(job.Netns)
		if err != nil {
			return err
		}
		defer done()
		spaces = open
	}
	var err error
	if in.Answers, err = spaces.Observe(ctx, t.Trace(in)); err != nil {
		return err
	}
	step := t.Traces(in)
	act := Act{Kind: ActApply, Fragment: &step.Fragment}
	act.keep(step.Restore)
	if step.Backup != nil {
		act.Files = []plugin.File{*step.Backup}
	}
	return a.takeBack(ctx, Record{Request: job.Request}, act, spaces, spaces.Remove)
}
