// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// settler deals with what an earlier ADD of the same attachment has left.
type settler struct {
	boot       string
	agent      bool
	namespaces *namespaces
	records    *recordStore
	machines   *machinesIn
	undoer     *undoer
	log        *slog.Logger
}

// settle deals with an earlier ADD of the same attachment: the same answer again, an error, or its undo. What is to
// stay of it, because the list has a plugin twice that only tunes, goes before the acts of this one.
func (s *settler) settle(ctx context.Context, job Job, id uint64, spaces kernel.Spaces) (*model.Result, []Act, error) {
	old, found, err := s.records.get(job.Request.Key())
	if err != nil || !found {
		return nil, nil, err
	}
	if old.Stage == Done && old.Boot == s.boot && old.NetnsID == id {
		fresh, err := s.compare(ctx, old, job, spaces)
		if fresh != nil || err != nil {
			return fresh, nil, err
		}
		if !s.agent && tunes(old) && !sameConf(old.Network, job.Network) {
			return nil, old.Acts, nil
		}
	}
	s.log.Info("undo what an earlier call left", "attachment", old.Key().String(), "stage", string(old.Stage))
	was, done := s.namespaces.ofRecord(old)
	defer done()
	return nil, nil, s.undoer.abandon(ctx, old, was)
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
func (s *settler) compare(ctx context.Context, old Record, job Job, spaces kernel.Spaces) (*model.Result, error) {
	made, there, err := s.interfaceThere(ctx, old, spaces)
	switch {
	case err != nil, made && !there, !made && !s.agent:
		return nil, err
	case !s.agent:
		return nil, exists(job, "")
	}
	if !sameConf(old.Network, job.Network) || !sameRequest(old.Request, job.Request) {
		return nil, exists(job, " with another configuration")
	}
	diff, err := spaces.Diff(ctx, s.machines.compose(old.Key(), old.Fragment()))
	if err != nil {
		return nil, err
	}
	if len(diff) > 0 {
		return nil, exists(job, " and was changed since: "+diff[0].String())
	}
	return old.Result, nil
}

func exists(job Job, how string) error {
	return model.Faultf(model.CodeExists, "DEL it first",
		"interface %q of container %s is attached to network %q already%s",
		job.Request.IfName, job.Request.ContainerID, job.Request.Network, how)
}

// interfaceThere tells whether the record made an interface in the container, and whether one of that name exists.
func (s *settler) interfaceThere(ctx context.Context, old Record, spaces kernel.Spaces) (made, there bool, err error) {
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
