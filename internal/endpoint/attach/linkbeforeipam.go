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

// linkBeforeIPAM is an interface that was created before its IPAM plugin was called, because the plugin needs it.
type linkBeforeIPAM struct {
	plugin   int
	answers  state.Answers
	fragment state.Fragment
	restore  state.Fragment
}

// planLink plans the interface of the segment's first plugin without addresses, if its IPAM needs the interface; it
// returns false if not.
func (r *run) planLink(ctx context.Context) (bool, error) {
	conf := r.job.Network.Plugins[r.seg.from]
	typ, err := r.a.catalog.ipamType(conf)
	if err != nil || !r.a.catalog.needsLink(typ) {
		return false, err
	}
	l := &linkBeforeIPAM{plugin: r.seg.from, answers: state.Answers{}}
	in := r.a.catalog.input(conf, r.job.Request)
	in.Chain, in.Answers, in.IPAMTiming, in.IPAM, in.MTU = r.chain, l.answers, plugin.LinkOnly, &model.Result{},
		r.a.resolver.podMTU(conf)
	step, err := r.decide(ctx, &in)
	if err != nil {
		return false, err
	}
	l.fragment = state.Fragment{Owner: plugin.Owner(r.job.Request.Key())}
	l.fragment.Merge(step.Fragment)
	l.restore = step.Restore
	act := Act{
		Kind:     ActApply,
		Plugin:   l.plugin,
		Fragment: &l.fragment,
		NewLinks: missingSharedLinks(l.fragment, l.answers),
	}
	act.setRestore(l.restore)
	r.rec.Acts = append(r.rec.Acts, act)
	r.seg.link = l
	return true, nil
}

// remainder reduces a step to what it adds to the interface that exists already. Its undo leaves the interface, which an
// IPAM plugin may need to release the addresses.
func (l *linkBeforeIPAM) remainder(conf model.PluginConf, step *plugin.Step) error {
	all := step.Fragment
	out := state.Fragment{
		Owner: all.Owner, Host: subtract(all.Host, l.fragment.Host), Pod: subtract(all.Pod, l.fragment.Pod),
	}
	for _, name := range []state.SpaceName{state.Host, state.Pod} {
		for _, was := range l.fragment.Space(name).Links {
			same := func(o state.Link) bool { return o.Name == was.Name }
			if slices.ContainsFunc(out.Space(name).Links, same) {
				return model.Errorf(model.CodeInternal, "this is a bug: report it with the configuration",
					"plugin %s: plan of link %s changed once its addresses were known", conf.Type, was.Name)
			}
		}
	}
	for _, e := range all.Effects {
		same := func(o state.Effect) bool { return reflect.DeepEqual(o, e) }
		if !slices.ContainsFunc(l.fragment.Effects, same) {
			out.Effects = append(out.Effects, e)
		}
	}
	step.Fragment = l.withAnnouncements(out)
	step.Restore.Host = subtract(step.Restore.Host, l.restore.Host)
	step.Restore.Pod = subtract(step.Restore.Pod, l.restore.Pod)
	return nil
}

// withAnnouncements adds announcements of the addresses to the neighbors: the kernel sends them when a link comes up,
// but this link is up already.
func (l *linkBeforeIPAM) withAnnouncements(f state.Fragment) state.Fragment {
	notified := map[string][]netip.Addr{}
	for _, a := range f.Pod.Addrs {
		if addr := a.Prefix.Addr(); !addr.IsLinkLocalUnicast() {
			notified[a.Link] = append(notified[a.Link], addr)
		}
	}
	for _, was := range l.fragment.Pod.Links {
		said := func(e state.Effect) bool { return e.Kind == state.Announce && e.Link == was.Name }
		if addrs := notified[was.Name]; len(addrs) > 0 && !slices.ContainsFunc(f.Effects, said) {
			f.Effects = append(f.Effects, state.Effect{Kind: state.Announce, Space: state.Pod, Link: was.Name, Addrs: addrs})
		}
	}
	return f
}

// subtract returns s without the objects that are equal in gone.
func subtract(s, gone state.Space) state.Space {
	out := reflect.New(reflect.TypeOf(s)).Elem()
	for i := range out.NumField() {
		have, without := reflect.ValueOf(s).Field(i), reflect.ValueOf(gone).Field(i)
		if have.Kind() != reflect.Slice {
			out.Field(i).Set(have)
			continue
		}
		for k := range have.Len() {
			if !contains(without, have.Index(k)) {
				out.Field(i).Set(reflect.Append(out.Field(i), have.Index(k)))
			}
		}
	}
	return out.Interface().(state.Space)
}

func contains(list, item reflect.Value) bool {
	for i := range list.Len() {
		if reflect.DeepEqual(list.Index(i).Interface(), item.Interface()) {
			return true
		}
	}
	return false
}
