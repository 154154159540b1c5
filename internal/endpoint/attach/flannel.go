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

// A plugin of type flannel delegates to another one. It is replaced by its delegate before anything is done for a job:
// the rest of the package plans, records and undoes the delegate only.
//
// As in the reference plugin, the delegate is saved in a file named after the container, so that either plugin can undo
// the other's ADD.

// hasDelegates reports whether a job has a plugin that delegates.
func (r *resolver) hasDelegates(job Job) bool {
	return slices.ContainsFunc(job.Network.Plugins, r.delegates)
}

// delegates reports whether a plugin delegates to another one.
func (r *resolver) delegates(conf model.PluginConf) bool {
	return conf.Type == plugin.FlannelType && r.catalog.planners[conf.Type] != nil
}

// replace returns the job with each delegating plugin replaced by the result of the function.
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

// resolve replaces delegating plugins by their delegates, from flanneld's current subnet file.
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
		job.saves = append(job.saves, savedDelegate{paths, string(d.Raw)})
		return d, err
	})
}

// resolveRecorded replaces delegating plugins by the delegates that the container was attached with.
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
		d, _, err := findSaved(conf, job.Request)
		if err != nil || d.Type != "" {
			return d, err
		}
		return delegate(conf)
	})
}

// resolveLenient replaces delegating plugins by their delegates where the node's subnets are not needed; an invalid job
// is returned unchanged.
func (r *resolver) resolveLenient(job Job) Job {
	job = r.withAny(job)
	resolved, err := r.replace(job, func(_ *Job, conf model.PluginConf) (model.PluginConf, error) {
		if d, err := delegate(conf); err == nil {
			return d, nil
		}
		return plugin.Flannel{}.Delegate(conf, plugin.FlannelNode{})
	})
	if err != nil {
		return job // the configuration is invalid
	}
	return resolved
}

// delegate returns the plugin that conf delegates to on this node now.
func delegate(conf model.PluginConf) (model.PluginConf, error) {
	path, err := plugin.Flannel{}.SubnetFile(conf)
	if err != nil {
		return conf, err
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return conf, model.Errorf(model.CodeTryAgain, "flanneld writes it: is it running, and has the node a subnet?",
			"plugin flannel: subnetFile %s is not there yet", path)
	}
	var env flannel.SubnetEnv
	if err == nil {
		env, err = flannel.ParseSubnetEnv(text)
	}
	switch {
	case errors.Is(err, flannel.ErrIncomplete):
		return conf, model.Errorf(model.CodeTryAgain, "perhaps flanneld is just writing it",
			"plugin flannel: subnetFile %s: %w", path, err)
	case err != nil:
		return conf, model.Errorf(model.CodeInvalidConf, "flanneld rewrites it when it starts",
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

// findSaved returns the delegate that is saved for a container of this network; its type is empty if there is none. An
// unreadable file counts as none.
func findSaved(conf model.PluginConf, r model.Request) (d model.PluginConf, path string, err error) {
	paths, err := plugin.Flannel{}.Saved(conf, r)
	if err != nil {
		return d, "", err
	}
	for _, path := range slices.Backward(paths) { // the second path is specific to the interface
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

// saveAct returns the act that saves a run's delegates. If the reference plugin's path is in use by another network of
// the container, the second path is used; the reference plugin would overwrite it.
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

// removeStaleDelegates removes the saved delegates of the network's containers that are not valid.
func (r *resolver) removeStaleDelegates(job Job, validKeys map[model.AttachmentKey]bool) error {
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
			errs = append(errs, model.Errorf(model.CodeIO, "", "plugin flannel: dataDir: %w", err))
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if _, ok := readSaved(path, job.Network.Name); ok && !wanted(e.Name(), validKeys) {
				errs = append(errs, removeFiles([]plugin.File{{Path: path}}))
			}
		}
	}
	return errors.Join(errs...)
}

func wanted(name string, validKeys map[model.AttachmentKey]bool) bool {
	for k := range validKeys {
		if name == k.ContainerID || name == k.ContainerID+"."+k.IfName {
			return true
		}
	}
	return false
}
