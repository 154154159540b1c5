// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// inspect observes what foreign plugins have created without reporting it: a macvtap, a veth pair with an end on the
// node, or no link, where a program drives the PCI device. Policy enforcement needs this before the ADD ends.
func (r *run) inspect(ctx context.Context) error {
	pci := deviceOf(r.job.Request)
	foreign := slices.ContainsFunc(r.rec.Acts, func(a Act) bool { return a.Kind == ActExec })
	if r.rec.makesMacvtap() {
		r.rec.Observed = ObservedInterface{Tap: true}
		return nil
	}
	if r.a.hook.enforcer == nil || pci == "" && !foreign {
		return nil
	}
	own, other := state.Query{Space: state.Pod, Link: r.job.Request.IfName},
		state.Query{Space: state.Pod, OtherEnd: r.job.Request.IfName}
	answers, err := r.spaces.Observe(ctx, []state.Query{own, other})
	if err != nil {
		return fmt.Errorf("network %q: %w", r.job.Network.Name, err)
	}
	seen := ObservedInterface{Tap: answers[own].Link.Kind == state.Macvtap, Device: pci}
	if answers[own].Found {
		seen.Device = ""
	}
	if end := answers[other].Link; foreign && answers[other].Found {
		seen.End = end.Name
		bridge := state.Query{Space: state.Host, Link: end.Master}
		if end.Master != "" {
			if answers, err = r.spaces.Observe(ctx, []state.Query{bridge}); err != nil {
				return fmt.Errorf("network %q: %w", r.job.Network.Name, err)
			}
			if seen.EndPort = answers[bridge].Link.Kind == state.Bridge; !seen.EndPort {
				seen.End = "" // another kind of switch: no rules can be applied to its ports
			}
		}
	}
	r.rec.Observed = seen
	return nil
}

// deviceOf returns the PCI address of the request's device, empty if it has none.
func deviceOf(r model.Request) string {
	if r.Origin == nil || strings.Count(r.Origin.Device, ":") != 2 {
		return ""
	}
	return r.Origin.Device
}
