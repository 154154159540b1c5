// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"net/netip"
	"reflect"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// linked is an interface that was made before its addresses were known.
type linked struct {
	plugin   int
	answers  state.Answers
	fragment state.Fragment
	restore  state.Fragment
}

// link plans the interface of the segment's first plugin without addresses when its IPAM section needs that; false when
// it does not.
func (r *run) link(ctx context.Context) (bool, error) {
	conf := r.job.Network.Plugins[r.seg.from]
	typ, err := r.a.catalog.ipamType(conf)
	if err != nil || !r.a.catalog.late(typ) {
		return false, err
	}
	l := &linked{plugin: r.seg.from, answers: state.Answers{}}
	in := r.a.catalog.input(conf, r.job.Request)
	in.Chain, in.Answers, in.Late, in.IPAM, in.MTU = r.chain, l.answers, plugin.LinkAlone, &model.Result{},
		r.a.resolver.podMTU(conf)
	step, err := r.decide(ctx, in)
	if err != nil {
		return false, err
	}
	l.fragment = state.Fragment{Owner: plugin.Owner(r.job.Request.Key())}
	l.fragment.Merge(step.Fragment)
	l.restore = step.Restore
	act := Act{Kind: ActApply, Plugin: l.plugin, Fragment: &l.fragment, Fresh: fresh(l.fragment, l.answers)}
	act.keep(l.restore)
	r.rec.Acts = append(r.rec.Acts, act)
	r.seg.made = l
	return true, nil
}

// rest is what a step adds to the interface that exists already. Undone by itself, it leaves the interface, through
// which an IPAM plugin may have to give the addresses back.
func (l *linked) rest(conf model.PluginConf, step plugin.Step) (plugin.Step, error) {
	all := step.Fragment
	out := state.Fragment{Owner: all.Owner, Host: less(all.Host, l.fragment.Host), Pod: less(all.Pod, l.fragment.Pod)}
	for _, name := range []state.SpaceName{state.Host, state.Pod} {
		for _, was := range l.fragment.Space(name).Links {
			same := func(o state.Link) bool { return o.Name == was.Name }
			if slices.ContainsFunc(out.Space(name).Links, same) {
				return step, model.Faultf(model.CodeInternal, "this is a bug: report it with the configuration",
					"plugin %s: link %s is planned otherwise once its addresses are known", conf.Type, was.Name)
			}
		}
	}
	for _, e := range all.Effects {
		same := func(o state.Effect) bool { return reflect.DeepEqual(o, e) }
		if !slices.ContainsFunc(l.fragment.Effects, same) {
			out.Effects = append(out.Effects, e)
		}
	}
	step.Fragment = l.announced(out)
	step.Restore.Host, step.Restore.Pod = less(step.Restore.Host, l.restore.Host), less(step.Restore.Pod, l.restore.Pod)
	return step, nil
}

// announced adds that the addresses are told to the neighbors: the kernel does that when a link comes up, and this one
// is.
func (l *linked) announced(f state.Fragment) state.Fragment {
	told := map[string][]netip.Addr{}
	for _, a := range f.Pod.Addrs {
		if addr := a.Prefix.Addr(); !addr.IsLinkLocalUnicast() {
			told[a.Link] = append(told[a.Link], addr)
		}
	}
	for _, was := range l.fragment.Pod.Links {
		said := func(e state.Effect) bool { return e.Kind == state.Announce && e.Link == was.Name }
		if addrs := told[was.Name]; len(addrs) > 0 && !slices.ContainsFunc(f.Effects, said) {
			f.Effects = append(f.Effects, state.Effect{Kind: state.Announce, Space: state.Pod, Link: was.Name, Addrs: addrs})
		}
	}
	return f
}

// less is a space without what another one names in the same words.
func less(s, gone state.Space) state.Space {
	out := reflect.New(reflect.TypeOf(s)).Elem()
	for i := range out.NumField() {
		have, without := reflect.ValueOf(s).Field(i), reflect.ValueOf(gone).Field(i)
		if have.Kind() != reflect.Slice {
			out.Field(i).Set(have)
			continue
		}
		for k := range have.Len() {
			if !holds(without, have.Index(k)) {
				out.Field(i).Set(reflect.Append(out.Field(i), have.Index(k)))
			}
		}
	}
	return out.Interface().(state.Space)
}

func holds(list, item reflect.Value) bool {
	for i := range list.Len() {
		if reflect.DeepEqual(list.Index(i).Interface(), item.Interface()) {
			return true
		}
	}
	return false
}
