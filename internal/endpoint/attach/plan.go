// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"maps"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// plan runs the segment's planners and merges their plans into one act, which is not applied yet.
func (r *run) plan(ctx context.Context) error {
	first := r.seg.link
	owner := plugin.Owner(r.job.Request.Key())
	segment, restore := state.Fragment{Owner: owner}, state.Fragment{Owner: owner}
	done := r.chain.Fragment // by earlier acts
	if first != nil {
		done.Merge(first.fragment)
	}
	answers := state.Answers{}
	maps.Copy(answers, r.seg.answers)
	var files []plugin.File
	var guests []model.GuestConfig
	for k := r.seg.from; k < r.seg.to; k++ {
		conf := r.job.Network.Plugins[k]
		in := r.a.catalog.input(conf, r.job.Request)
		in.IPAM, in.Chain, in.Answers, in.MTU = r.seg.results[k], r.chain, answers, r.a.resolver.podMTU(conf)
		if first != nil && first.plugin == k {
			in.IPAMTiming, in.Answers = plugin.LinkMade, first.answers // the answers from before the interface existed
		}
		step, err := r.decide(ctx, in)
		if err != nil {
			return err
		}
		if in.IPAMTiming != plugin.IPAMFirst {
			if step, err = first.remainder(in.Conf, step); err != nil {
				return err
			}
		}
		step.Result = plugin.MergeResults(r.chain.Prev, step.Result)
		if step.Pending != nil {
			segment = *step.Pending
		}
		segment.Merge(step.Fragment)
		restore.Merge(step.Restore)
		if step.Backup != nil {
			files = append(files, *step.Backup)
		}
		guests = append(guests, step.Guests...)
		r.chain.Pending = segment
		r.chain.Fragment = sum(owner, done, segment)
		r.chain.Prev = &step.Result
	}
	act := Act{
		Kind: ActApply, Plugin: r.seg.from, Fragment: &segment,
		NewLinks: missingSharedLinks(segment, answers), Files: files, Guests: guests,
	}
	act.setRestore(restore)
	r.deferAddressState(&act)
	r.rec.Acts, r.rec.Result = append(r.rec.Acts, act), r.chain.Prev
	return nil
}

// setRestore stores the pre-image of what an act changes; nil if nothing existed before.
func (act *Act) setRestore(restore state.Fragment) {
	if !restore.Host.Empty() || !restore.Pod.Empty() {
		act.Restore = &restore
	}
}

// decide runs one planner; its queries are answered by the kernel first.
func (r *run) decide(ctx context.Context, in plugin.Input) (plugin.Step, error) {
	p := r.a.catalog.planners[in.Conf.Type]
	queries, err := p.Observe(in)
	if err != nil {
		return plugin.Step{}, err
	}
	if err := r.observe(ctx, queries, in.Answers); err != nil {
		return plugin.Step{}, err
	}
	step, err := p.Plan(in)
	for _, d := range step.Warnings {
		if _, notified := r.a.loggedWarnings.LoadOrStore(d.Msg, true); !notified {
			r.a.log.Warn(d.Msg, "plugin", in.Conf.Type, "field", d.Field, "hint", d.Hint)
		}
	}
	if err == nil {
		err = plugin.CheckMTU(in.Conf, step.Fragment)
	}
	return step, err
}

// observe queries the kernel for what has no answer yet.
func (r *run) observe(ctx context.Context, queries []state.Query, answers state.Answers) error {
	var open []state.Query
	for _, q := range queries {
		if _, known := answers[q]; !known {
			open = append(open, q)
		}
	}
	if len(open) == 0 {
		return nil
	}
	more, err := r.spaces.Observe(ctx, open)
	if err != nil {
		return err
	}
	for q, answer := range more {
		answers[q] = answer
	}
	return nil
}

// missingSharedLinks returns the names of the plan's shared links that do not exist yet.
func missingSharedLinks(f state.Fragment, answers state.Answers) []string {
	var out []string
	for _, l := range f.Host.Links {
		if !l.Shared || l.Kind == "" {
			continue
		}
		if answer, asked := answers[state.Query{Space: state.Host, Link: l.Name}]; asked && !answer.Found {
			out = append(out, l.Name)
		}
	}
	return out
}
