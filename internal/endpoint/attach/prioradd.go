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

// priorAdd handles a repeated ADD of the same attachment.
type priorAdd struct {
	boot       string
	agent      bool
	namespaces *namespaces
	records    *notifyingStore
	vms        *podVMs
	rollback   *rollback
	log        *slog.Logger
}

// resolve handles an earlier ADD of the same attachment: it returns the same result, an error, or undoes it. In a
// standalone list with a tuning plugin twice, the earlier acts are kept and returned.
func (s *priorAdd) resolve(
	ctx context.Context,
	job Job,
	id uint64,
	spaces kernel.Spaces,
) (*model.Result, []Act, error) {
	old, found, err := s.records.get(job.Request.Key())
	if err != nil || !found {
		return nil, nil, err
	}
	if old.Stage == Done && old.Boot == s.boot && old.NetnsID == id {
		fresh, err := s.compare(ctx, old, job, spaces)
		if fresh != nil || err != nil {
			return fresh, nil, err
		}
		if !s.agent && onlyTunes(old) && !sameConf(old.Network, job.Network) {
			return nil, old.Acts, nil
		}
	}
	s.log.Info("undoing what an earlier call has left", "attachment", old.Key().String(), "stage", string(old.Stage))
	was, done := s.namespaces.ofRecord(old)
	defer done()
	return nil, nil, s.rollback.abandon(ctx, old, was)
}

// onlyTunes reports whether a record only changes links and sysctls of the container that other plugins made.
func onlyTunes(rec Record) bool {
	f := rec.Fragment()
	rest := f.Pod
	rest.Links, rest.Sysctls = nil, nil
	made := func(l state.Link) bool { return l.Kind != "" || l.MovedFrom != nil }
	return f.Host.Empty() && rest.Empty() && !f.Pod.Empty() && !slices.ContainsFunc(f.Pod.Links, made)
}

// compare compares a finished attachment with a repeated ADD. Without a result and an error, nothing is left of the
// attachment.
func (s *priorAdd) compare(ctx context.Context, old Record, job Job, spaces kernel.Spaces) (*model.Result, error) {
	made, there, err := s.findInterface(ctx, old, spaces)
	switch {
	case err != nil, made && !there, !made && !s.agent:
		return nil, err
	case !s.agent:
		return nil, alreadyAttached(job, "")
	}
	if !sameConf(old.Network, job.Network) || !sameRequest(old.Request, job.Request) {
		return nil, alreadyAttached(job, " with another configuration")
	}
	diff, err := compare(ctx, spaces, s.vms.compose(old.Key(), old.Fragment()))
	if err != nil {
		return nil, err
	}
	if len(diff) > 0 {
		return nil, alreadyAttached(job, " and was changed since: "+diff[0].String())
	}
	return old.Result, nil
}

func alreadyAttached(job Job, how string) error {
	return model.Errorf(model.CodeExists, "DEL it first",
		"interface %q of container %s is attached to network %q already%s",
		job.Request.IfName, job.Request.ContainerID, job.Request.Network, how)
}

// findInterface reports whether the record made an interface in the container, and whether one of that name exists.
func (s *priorAdd) findInterface(ctx context.Context, old Record, spaces kernel.Spaces) (made, there bool, err error) {
	var queries []state.Query
	for _, l := range old.Fragment().Pod.Links {
		if l.Kind != "" || l.MovedFrom != nil {
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
	b, err := json.Marshal(raw) // in the same form as in the record
	if err != nil {
		return raw
	}
	return b
}
