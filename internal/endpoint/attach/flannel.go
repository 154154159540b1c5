// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// A plugin of type flannel stands for another one. Before anything is done for a job, that one is put in its place: the
// rest of the room plans, records and undoes the delegate, and never sees flannel.
//
// As the reference plugin does, the delegate is written down under the container's name, so that the DEL of one undoes
// the ADD of the other.

// hasDelegates reports whether a job has a plugin that stands for another one.
func (r *resolver) hasDelegates(job Job) bool {
	return slices.ContainsFunc(job.Network.Plugins, r.delegates)
}

// delegates reports whether a plugin stands for another one.
func (r *resolver) delegates(conf model.PluginConf) bool {
	return conf.Type == plugin.FlannelType && r.catalog.planners[conf.Type] != nil
}

// replace gives a job with what replace says for each plugin that stands for another one.
func (r *resolver) replace(
	job Job, replace func(job *Job, conf model.PluginConf) (model.PluginConf, error),
) (Job, error) {
	if !r.hasDelegates(job) {
		return job, nil
	}
	job.Network.Plugins = slices.Clone(job.Network.Plugins)
	for i, conf := range job.Network.Plugins {
		if !r.delegates(conf) {
			continue
		}
		d, err := replace(&job, conf)
		if err != nil {
			return job, err
		}
		job.Network.Plugins[i] = d
	}
	return job, nil
}

// resolve puts delegates in their places, by what flanneld says now.
func (r *resolver) resolve(job Job) (Job, error) {
	job, err := r.withNode(job)
	if err == nil {
		job, err = r.withPod(job)
	}
	if err != nil {
		return job, err
	}
	return r.replace(job, func(job *Job, conf model.PluginConf) (model.PluginConf, error) {
		d, err := delegate(conf)
		if err != nil || job.Request.ContainerID == "" {
			return d, err
		}
		paths, err := plugin.Flannel{}.Saved(conf, job.Request)
		job.saves = append(job.saves, save{paths, string(d.Raw)})
		return d, err
	})
}

// resolveRecorded puts the delegates in their places that the container has, whatever flanneld says by now.
func (r *resolver) resolveRecorded(job Job) (Job, error) {
	if !r.hasDelegates(job) && !slices.ContainsFunc(job.Network.Plugins, r.changes) {
		return job, nil
	}
	rec, found, err := r.records.get(job.Request.Key())
	if err != nil {
		return job, err
	}
	if found && len(rec.Network.Plugins) == len(job.Network.Plugins) {
		job.Network.Plugins = rec.Network.Plugins
		return job, nil
	}
	if job, err = r.withNode(job); err == nil {
		job, err = r.withPod(job)
	}
	if err != nil {
		return job, err
	}
	return r.replace(job, func(job *Job, conf model.PluginConf) (model.PluginConf, error) {
		d, _, err := saved(conf, job.Request)
		if err != nil || d.Type != "" {
			return d, err
		}
		return delegate(conf)
	})
}

// resolveAnyhow puts delegates in their places for what can do without the node's subnets.
func (r *resolver) resolveAnyhow(job Job) Job {
	job = r.withAny(job)
	resolved, err := r.replace(job, func(_ *Job, conf model.PluginConf) (model.PluginConf, error) {
		if d, err := delegate(conf); err == nil {
			return d, nil
		}
		return plugin.Flannel{}.Delegate(conf, plugin.FlannelNode{})
	})
	if err != nil {
		return job // its configuration is wrong, and so is whatever would be made of it
	}
	return resolved
}

// delegate is the plugin that conf stands for on this node now.
func delegate(conf model.PluginConf) (model.PluginConf, error) {
	path, err := plugin.Flannel{}.SubnetFile(conf)
	if err != nil {
		return conf, err
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return conf, model.Faultf(model.CodeTryAgain, "flanneld writes it: is it running, and has the node a subnet?",
			"plugin flannel: subnetFile %s is not there yet", path)
	}
	var env flannel.SubnetEnv
	if err == nil {
		env, err = flannel.ParseSubnetEnv(text)
	}
	switch {
	case errors.Is(err, flannel.ErrIncomplete):
		return conf, model.Faultf(model.CodeTryAgain, "perhaps flanneld is just writing it",
			"plugin flannel: subnetFile %s: %w", path, err)
	case err != nil:
		return conf, model.Faultf(model.CodeInvalidConf, "flanneld writes it anew when it starts",
			"plugin flannel: subnetFile %s: %w", path, err)
	}
	node := plugin.FlannelNode{Networks: env.Networks, MTU: env.MTU, IPMasq: env.IPMasq}
	if env.Subnet.IsValid() {
		node.Subnets = append(node.Subnets, env.Subnet)
	}
	if env.IPv6Subnet.IsValid() {
		node.Subnets = append(node.Subnets, env.IPv6Subnet)
	}
	return plugin.Flannel{}.Delegate(conf, node)
}

// saved is the delegate that is written down for a container, of this network; its type is empty when there is none. A
// file that cannot be understood is none.
func saved(conf model.PluginConf, r model.Request) (d model.PluginConf, path string, err error) {
	paths, err := plugin.Flannel{}.Saved(conf, r)
	if err != nil {
		return d, "", err
	}
	for _, path := range slices.Backward(paths) { // the second one is this interface's own
		if d, ok := readSaved(path, r.Network); ok {
			return d, path, nil
		}
	}
	return d, "", nil
}

func readSaved(path, network string) (d model.PluginConf, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return d, false
	}
	var c struct {
		Name string `json:"name"`
		Type string `json:"type"`
	}
	if json.Unmarshal(text, &c) != nil || c.Name != network || c.Type == "" {
		return d, false
	}
	return model.PluginConf{Type: c.Type, Raw: text}, true
}

// saveAct is the writing down of a run's delegates. What stands in the reference plugin's place is another network's of
// the same container: that plugin would write over it.
func (r *run) saveAct() Act {
	act := Act{Kind: ActSave}
	for _, s := range r.job.saves {
		path := s.paths[0]
		if _, err := os.Stat(path); err == nil {
			path = s.paths[1]
		}
		act.Files = append(act.Files, plugin.File{Path: path, Text: s.text})
	}
	return act
}

// sweepSaved takes away the delegates that are written down for containers of the network which are not valid.
func (r *resolver) sweepSaved(job Job, keep map[model.AttachmentKey]bool) error {
	var errs []error
	for _, conf := range job.Network.Plugins {
		if !r.delegates(conf) {
			continue
		}
		dir, err := plugin.Flannel{}.DataDir(conf)
		if err != nil {
			return err
		}
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, model.Faultf(model.CodeIO, "", "plugin flannel: dataDir: %w", err))
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if _, ok := readSaved(path, job.Network.Name); ok && !wanted(e.Name(), keep) {
				errs = append(errs, removeFiles([]plugin.File{{Path: path}}))
			}
		}
	}
	return errors.Join(errs...)
}

func wanted(name string, keep map[model.AttachmentKey]bool) bool {
	for k := range keep {
		if name == k.ContainerID || name == k.ContainerID+"."+k.IfName {
			return true
		}
	}
	return false
}
