// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// deferAddressState moves the routes to a standby attachment's addresses, and the rules that accept their packets, from
// an act to Deferred: Activate applies them.
func (r *run) deferAddressState(act *Act) {
	if !r.rec.Standby {
		return
	}
	var own state.Space
	act.Fragment.Host, own = splitAddressState(act.Fragment.Host, addresses(r.rec))
	if r.rec.Deferred == nil {
		r.rec.Deferred = &state.Fragment{Owner: act.Fragment.Owner}
	}
	r.rec.Deferred.Merge(state.Fragment{Host: own})
	// The neighbors would redirect traffic to this node; the VM answers a probe at its present node.
	act.Fragment.Effects = slices.DeleteFunc(act.Fragment.Effects, func(e state.Effect) bool {
		return e.Kind == state.Announce || e.Kind == state.ProbeAddrs
	})
}

// splitAddressState separates the routes to addresses, and the rules that accept their packets, from the rest.
func splitAddressState(host state.Space, addrs []netip.Addr) (rest, own state.Space) {
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

// addressState returns the routes to the record's addresses and the rules that accept their packets, applied or
// deferred.
func (r Record) addressState() state.Space {
	_, own := splitAddressState(r.Fragment().Host, addresses(r))
	if r.Deferred == nil {
		return own
	}
	return sum(plugin.Owner(r.Key()), state.Fragment{Host: own}, *r.Deferred).Host
}

// active returns the record as active, standby as standby. Neither shares memory with the record.
func (r Record) active() Record {
	deferred := r.Deferred
	r.Standby, r.Switching, r.Deferred, r.Acts = false, true, nil, slices.Clone(r.Acts)
	for i := len(r.Acts) - 1; i >= 0 && deferred != nil; i-- {
		if f := r.Acts[i].Fragment; f != nil {
			whole := sum(f.Owner, *f, *deferred)
			r.Acts[i].Fragment = &whole
			break
		}
	}
	return r
}

func (r Record) standby() Record {
	all := addresses(r)
	r.Standby, r.Switching, r.Deferred, r.Acts = true, true, &state.Fragment{Owner: plugin.Owner(r.Key())},
		slices.Clone(r.Acts)
	for i := range r.Acts {
		if r.Acts[i].Fragment == nil {
			continue
		}
		less := *r.Acts[i].Fragment
		var addrState state.Space
		less.Host, addrState = splitAddressState(less.Host, all)
		r.Acts[i].Fragment = &less
		r.Deferred.Merge(state.Fragment{Host: addrState})
	}
	return r
}
