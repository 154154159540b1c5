// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"maps"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// segmentPlan is the plan of a segment: the sum of its planners' steps.
type segmentPlan struct {
	done              state.Fragment // by earlier acts
	fragment, restore state.Fragment
	answers           state.Answers
	files             []plugin.File
	guests            []model.GuestConfig
}

// plan runs the segment's planners and merges their plans into one act, which is not applied yet. An input and a step
// take 1.5 kB each: they are passed by reference, because the copies made a plugin's process grow its stack to 64 kB.
func (r *run) plan(ctx context.Context) error {
	p := r.newPlan()
	for k := r.seg.from; k < r.seg.to; k++ {
		in := r.input(k, p.answers)
		step, err := r.decide(ctx, in)
		if err != nil {
			return err
		}
		if in.IPAMTiming != plugin.IPAMFirst {
			if err := r.seg.link.remainder(in.Conf, step); err != nil {
				return err
			}
		}
		r.add(step, p)
	}
	r.record(p)
	return nil
}

// newPlan returns the segment's plan before its first planner.
func (r *run) newPlan() *segmentPlan {
	owner := plugin.Owner(r.job.Request.Key())
	p := &segmentPlan{
		done: r.chain.Fragment, fragment: state.Fragment{Owner: owner}, restore: state.Fragment{Owner: owner},
		answers: state.Answers{},
	}
	if first := r.seg.link; first != nil {
		p.done.Merge(first.fragment)
	}
	maps.Copy(p.answers, r.seg.answers)
	return p
}

// input returns the input of the planner of the plugin at an index.
func (r *run) input(k int, answers state.Answers) *plugin.Input {
	conf := r.job.Network.Plugins[k]
	in := r.a.catalog.input(conf, r.job.Request)
	in.IPAM, in.Chain, in.Answers, in.MTU = r.seg.results[k], r.chain, answers, r.a.resolver.podMTU(conf)
	if first := r.seg.link; first != nil && first.plugin == k {
		in.IPAMTiming, in.Answers = plugin.LinkMade, first.answers // the answers from before the interface existed
	}
	return &in
}

// add adds a planner's step to the segment's plan and to the chain.
func (r *run) add(step *plugin.Step, p *segmentPlan) {
	step.Result = plugin.MergeResults(r.chain.Prev, step.Result)
	if step.Pending != nil {
		p.fragment = *step.Pending
	}
	p.fragment.Merge(step.Fragment)
	p.restore.Merge(step.Restore)
	if step.Backup != nil {
		p.files = append(p.files, *step.Backup)
	}
	p.guests = append(p.guests, step.Guests...)
	r.chain.Pending = p.fragment
	r.chain.Fragment = sum(plugin.Owner(r.job.Request.Key()), p.done, p.fragment)
	r.chain.Prev = &step.Result
}

// record adds the segment's plan to the record, as one act.
func (r *run) record(p *segmentPlan) {
	act := Act{
		Kind: ActApply, Plugin: r.seg.from, Fragment: &p.fragment,
		NewLinks: missingSharedLinks(p.fragment, p.answers), Files: p.files, Guests: p.guests,
	}
	act.setRestore(p.restore)
	r.deferAddressState(&act)
	r.rec.Acts, r.rec.Result = append(r.rec.Acts, act), r.chain.Prev
}

// setRestore stores the pre-image of what an act changes; nil if nothing existed before.
func (act *Act) setRestore(restore state.Fragment) {
	if !restore.Host.Empty() || !restore.Pod.Empty() {
		act.Restore = &restore
	}
}

// decide runs one planner; its queries are answered by the kernel first.
func (r *run) decide(ctx context.Context, in *plugin.Input) (*plugin.Step, error) {
	p := r.a.catalog.planners[in.Conf.Type]
	queries, err := p.Observe(*in)
	if err != nil {
		return nil, err
	}
	if err := r.observe(ctx, queries, in.Answers); err != nil {
		return nil, err
	}
	step := new(plugin.Step)
	*step, err = p.Plan(*in)
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
