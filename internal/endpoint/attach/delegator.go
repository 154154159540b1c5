// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/endpoint/foreign"
	"github.com/weft-net/weft/internal/model"
)

// delegator executes foreign plugins, each verb as the network's CNI version defines it.
type delegator struct {
	exec *foreign.Runner
}

// find returns an error if the plugin's program is in none of the directories.
func (d *delegator) find(typ string, path []string) error {
	_, err := d.exec.Find(typ, path)
	return err
}

// add executes the ADD of a plugin with the result of the plugins before it.
func (d *delegator) add(
	ctx context.Context, job Job, conf model.PluginConf, typ string, prev *model.Result,
) (model.Result, error) {
	stdin, err := cni.WithPrev(conf, job.Network.CNIVersion, prev)
	if err != nil {
		return model.Result{}, err
	}
	out, err := d.exec.Run(ctx, foreign.Call{Verb: cni.Add, Type: typ, Request: job.Request, Conf: stdin})
	if err != nil {
		return model.Result{}, err
	}
	result, err := cni.ParseResult(out)
	if err != nil {
		return result, fmt.Errorf("plugin %s ADD: %w", typ, err)
	}
	return result, nil
}

// del executes the DEL of a plugin with the last known result.
func (d *delegator) del(
	ctx context.Context, n model.Network, r model.Request, conf model.PluginConf, typ string, prev *model.Result,
) error {
	if !cni.AtLeast(n.CNIVersion, "0.4.0") {
		prev = nil
	}
	return d.run(ctx, cni.Del, n, r, conf, typ, prev)
}

func (d *delegator) check(ctx context.Context, job Job, conf model.PluginConf, typ string, prev *model.Result) error {
	if !cni.AtLeast(job.Network.CNIVersion, "0.4.0") {
		return nil
	}
	return d.run(ctx, cni.Check, job.Network, job.Request, conf, typ, prev)
}

func (d *delegator) status(ctx context.Context, job Job, conf model.PluginConf, typ string) error {
	if !cni.AtLeast(job.Network.CNIVersion, "1.1.0") {
		return nil
	}
	return d.run(ctx, cni.Status, job.Network, job.Request, conf, typ, nil)
}

// gc executes the GC of a plugin with the list of valid attachments.
func (d *delegator) gc(
	ctx context.Context, job Job, conf model.PluginConf, typ string, valid []model.AttachmentKey,
) error {
	if !cni.AtLeast(job.Network.CNIVersion, "1.1.0") {
		return nil
	}
	stdin, err := cni.WithValid(conf, job.Network.CNIVersion, valid)
	if err != nil {
		return err
	}
	_, err = d.exec.Run(ctx, foreign.Call{Verb: cni.GC, Type: typ, Request: job.Request, Conf: stdin})
	return err
}

// run executes a verb without a result.
func (d *delegator) run(
	ctx context.Context, verb string, n model.Network, r model.Request, conf model.PluginConf, typ string,
	prev *model.Result,
) error {
	stdin, err := cni.WithPrev(conf, n.CNIVersion, prev)
	if err != nil {
		return err
	}
	_, err = d.exec.Run(ctx, foreign.Call{Verb: verb, Type: typ, Request: r, Conf: stdin})
	return err
}
