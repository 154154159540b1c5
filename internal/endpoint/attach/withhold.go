// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// withhold takes what leads to an attachment's own addresses out of an act, when the attachment stands by.
func (r *run) withhold(act *Act) {
	if !r.rec.Standby {
		return
	}
	var own state.Space
	act.Fragment.Host, own = split(act.Fragment.Host, addresses(r.rec))
	if r.rec.Withheld == nil {
		r.rec.Withheld = &state.Fragment{Owner: act.Fragment.Owner}
	}
	r.rec.Withheld.Merge(state.Fragment{Host: own})
	// The wire would believe it.
	act.Fragment.Effects = slices.DeleteFunc(act.Fragment.Effects, func(e state.Effect) bool {
		return e.Kind == state.Announce
	})
}

// split tells what leads to addresses, and what lets packets of theirs in, from all the rest.
func split(host state.Space, addrs []netip.Addr) (rest, own state.Space) {
	rest = host
	rest.Routes, rest.Tables = nil, nil
	for _, r := range host.Routes {
		if r.Dst.IsSingleIP() && slices.Contains(addrs, r.Dst.Addr()) {
			own.Routes = append(own.Routes, r)
		} else {
			rest.Routes = append(rest.Routes, r)
		}
	}
	for _, t := range host.Tables {
		others, sources := plugin.SplitSources(t)
		rest.Tables = append(rest.Tables, others)
		if sources != nil {
			own.Tables = append(own.Tables, *sources)
		}
	}
	return rest, own
}

// ways are what leads to the record's addresses, and what lets in what comes from there, applied or withheld.
func (r Record) ways() state.Space {
	_, ways := split(r.Fragment().Host, addresses(r))
	if r.Withheld == nil {
		return ways
	}
	return sum(plugin.Owner(r.Key()), state.Fragment{Host: ways}, *r.Withheld).Host
}

// active is the record without anything withheld, standing the one with. Neither shares anything with the record.
func (r Record) active() Record {
	withheld := r.Withheld
	r.Standby, r.Turning, r.Withheld, r.Acts = false, true, nil, slices.Clone(r.Acts)
	for i := len(r.Acts) - 1; i >= 0 && withheld != nil; i-- {
		if f := r.Acts[i].Fragment; f != nil {
			whole := sum(f.Owner, *f, *withheld)
			r.Acts[i].Fragment = &whole
			break
		}
	}
	return r
}

func (r Record) standing() Record {
	all := addresses(r)
	r.Standby, r.Turning, r.Withheld, r.Acts = true, true, &state.Fragment{Owner: plugin.Owner(r.Key())},
		slices.Clone(r.Acts)
	for i := range r.Acts {
		if r.Acts[i].Fragment == nil {
			continue
		}
		less := *r.Acts[i].Fragment
		var ways state.Space
		less.Host, ways = split(less.Host, all)
		r.Acts[i].Fragment = &less
		r.Withheld.Merge(state.Fragment{Host: ways})
	}
	return r
}
