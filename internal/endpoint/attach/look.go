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

// macvtap is the kernel's name of a link by which a hypervisor speaks on another one.
const macvtap state.Kind = "macvtap"

// look finds out what plugins have made that say nothing of it: a macvtap, a pair whose other end is on the node, or
// nothing, where a program drives the interface's device. Policy goes by that, before the ADD ends.
func (r *run) look(ctx context.Context) error {
	pci := deviceOf(r.job.Request)
	foreign := slices.ContainsFunc(r.rec.Acts, func(a Act) bool { return a.Kind == ActExec })
	if r.a.hook.guard == nil || pci == "" && !foreign {
		return nil
	}
	own, other := state.Query{Space: state.Pod, Link: r.job.Request.IfName},
		state.Query{Space: state.Pod, OtherEnd: r.job.Request.IfName}
	answers, err := r.spaces.Observe(ctx, []state.Query{own, other})
	if err != nil {
		return fmt.Errorf("network %q: %w", r.job.Network.Name, err)
	}
	seen := Looks{Tap: answers[own].Link.Kind == macvtap, Device: pci}
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
				seen.End = "" // a switch of another kind: its ports have no rules
			}
		}
	}
	r.rec.Looks = seen
	return nil
}

// deviceOf is the PCI address of the device that a request is about; empty where it is about none.
func deviceOf(r model.Request) string {
	if r.Origin == nil || strings.Count(r.Origin.Device, ":") != 2 {
		return ""
	}
	return r.Origin.Device
}
