// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// adder attaches containers.
type adder struct {
	boot       string
	agent      bool
	namespaces *namespaces
	locks      *lockSet
	records    *recordStore
	catalog    *catalog
	resolver   *resolver
	delegates  *delegator
	machines   *machinesIn
	hook       *policyHook
	unmanaged  *unmanaged
	dscp       *dscpMarks
	undoer     *undoer
	cooling    *cooling
	reaper     *kernel.Reaper
	gates      func(ctx context.Context, urls []string) error // nil: nothing is waited for
	log        *slog.Logger
	now        func() time.Time
	fail       failpoint

	doubted sync.Map // the doubts of plans that were told
}

// addAll attaches one container to one or several networks, all or none. Neighbours in the list that are built in and have
// nothing of the node in common are planned one after the other and applied at once. failed is the job whose error it is.
func (a *adder) addAll(ctx context.Context, jobs []Job) (results []model.Result, failed int, err error) {
	if len(jobs) == 0 {
		return nil, 0, nil
	}
	jobs = slices.Clone(jobs)
	id, failed, err := a.admit(jobs)
	if err != nil {
		return nil, failed, err
	}
	for i := range jobs {
		if err := a.waitGates(ctx, jobs[i]); err != nil {
			return nil, i, err
		}
	}
	release, err := a.locks.of(jobs[0].Request.Network).Container(ctx, jobs[0].Request.ContainerID)
	if err != nil {
		return nil, 0, err
	}
	defer release()
	spaces, done, err := a.namespaces.open(jobs[0].Netns)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	b := &batch{a: a, id: id, spaces: spaces, jobs: jobs, results: make([]model.Result, len(jobs))}
	if failed, err = b.add(ctx); err != nil {
		return nil, failed, errors.Join(err, b.undo(ctx, 0))
	}
	return b.results, 0, nil
}

// admit refuses, before anything is touched, what cannot be attached. Of jobs that stand for others it makes those.
func (a *adder) admit(jobs []Job) (id uint64, failed int, err error) {
	for i, job := range jobs {
		if job.Netns == nil {
			return 0, i, model.Faultf(model.CodeInvalidNetns, "", "CNI_NETNS %q is no network namespace", job.Request.Netns)
		}
		if id, err = a.namespaces.id(job); err == nil {
			jobs[i], err = a.resolver.resolve(job)
		}
		if err == nil {
			err = a.catalog.validate(jobs[i])
		}
		if err != nil {
			return 0, i, err
		}
	}
	return id, 0, nil
}

func (a *adder) newRecord(job Job, netnsID uint64) Record {
	network := job.Network
	network.Raw = nil
	return Record{
		Boot: a.boot, Stage: Pending, Serial: a.now().UnixNano(), NetnsID: netnsID,
		Request: job.Request, Network: network,
	}
}

// settle deals with an earlier ADD of the same attachment: the same answer again, an error, or its undo. What is to stay of
// it, because the list has a plugin twice that only tunes, goes before the acts of this one.
func (a *adder) settle(ctx context.Context, job Job, id uint64, spaces kernel.Spaces) (*model.Result, []Act, error) {
	old, found, err := a.records.get(job.Request.Key())
	if err != nil || !found {
		return nil, nil, err
	}
	if old.Stage == Done && old.Boot == a.boot && old.NetnsID == id {
		fresh, err := a.compare(ctx, old, job, spaces)
		if fresh != nil || err != nil {
			return fresh, nil, err
		}
		if !a.agent && tunes(old) && !sameConf(old.Network, job.Network) {
			return nil, old.Acts, nil
		}
	}
	a.log.Info("undo what an earlier call left", "attachment", old.Key().String(), "stage", string(old.Stage))
	was, done := a.namespaces.ofRecord(old)
	defer done()
	return nil, nil, a.undoer.abandon(ctx, old, was)
}

// tunes tells whether all that a record did is to change links and settings of the container that others made.
func tunes(rec Record) bool {
	f := rec.Fragment()
	rest := f.Pod
	rest.Links, rest.Sysctls = nil, nil
	made := func(l state.Link) bool { return l.Kind != "" || l.From != nil }
	return f.Host.Empty() && rest.Empty() && !f.Pod.Empty() && !slices.ContainsFunc(f.Pod.Links, made)
}

// compare looks at a finished attachment that is asked for again. No result and no error: nothing is left of it.
func (a *adder) compare(ctx context.Context, old Record, job Job, spaces kernel.Spaces) (*model.Result, error) {
	made, there, err := a.interfaceThere(ctx, old, spaces)
	switch {
	case err != nil, made && !there, !made && !a.agent:
		return nil, err
	case !a.agent:
		return nil, exists(job, "")
	}
	if !sameConf(old.Network, job.Network) || !sameRequest(old.Request, job.Request) {
		return nil, exists(job, " with another configuration")
	}
	diff, err := spaces.Diff(ctx, a.machines.compose(old.Key(), old.Fragment()))
	if err != nil {
		return nil, err
	}
	if len(diff) > 0 {
		return nil, exists(job, " and was changed since: "+diff[0].String())
	}
	return old.Result, nil
}

func exists(job Job, how string) error {
	return model.Faultf(model.CodeExists, "DEL it first", "interface %q of container %s is attached to network %q already%s",
		job.Request.IfName, job.Request.ContainerID, job.Request.Network, how)
}

// interfaceThere tells whether the record made an interface in the container, and whether one of that name exists.
func (a *adder) interfaceThere(ctx context.Context, old Record, spaces kernel.Spaces) (made, there bool, err error) {
	var queries []state.Query
	for _, l := range old.Fragment().Pod.Links {
		if l.Kind != "" || l.From != nil {
			queries = append(queries, state.Query{Space: state.Pod, Link: l.Name})
		}
	}
	if len(queries) == 0 {
		return false, false, nil
	}
	answers, err := spaces.Observe(ctx, queries)
	for _, q := range queries {
		there = there || answers[q].Found
	}
	return true, there, err
}

func sameConf(a, b model.Network) bool {
	return a.CNIVersion == b.CNIVersion && slices.EqualFunc(a.Plugins, b.Plugins, func(p, q model.PluginConf) bool {
		return p.Type == q.Type && bytes.Equal(compact(p.Raw), compact(q.Raw))
	})
}

func sameRequest(a, b model.Request) bool {
	return a.Netns == b.Netns && slices.Equal(a.Args, b.Args)
}

func compact(raw json.RawMessage) []byte {
	b, err := json.Marshal(raw) // as the record's form was made
	if err != nil {
		return raw
	}
	return b
}

// waitGates waits for what the plugins of a job wait for.
func (a *adder) waitGates(ctx context.Context, job Job) error {
	for _, conf := range job.Network.Plugins {
		of := a.catalog.can(conf).Gates
		if of == nil || a.gates == nil {
			continue
		}
		urls, err := of(conf)
		if err == nil && len(urls) > 0 {
			err = a.gates(ctx, urls)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
