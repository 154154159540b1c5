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

// tapped finds out whether plugins have made the interface a macvtap, or left it to a program that drives its device: policy is told
// before the ADD ends.
func (r *run) tapped(ctx context.Context) error {
	pci := deviceOf(r.job.Request)
	if r.a.cfg.Guard == nil || pci == "" && !slices.ContainsFunc(r.rec.Acts, func(a Act) bool { return a.Kind == ActExec }) {
		return nil
	}
	q := state.Query{Space: state.Pod, Link: r.job.Request.IfName}
	answers, err := r.spaces.Observe(ctx, []state.Query{q})
	if err != nil {
		return fmt.Errorf("network %q: %w", r.job.Network.Name, err)
	}
	if answers[q].Found {
		pci = ""
	}
	if is := answers[q].Link.Kind == macvtap; is != r.rec.Tap || pci != r.rec.Device {
		r.rec.Tap, r.rec.Device, r.current = is, pci, false
	}
	return nil
}

// deviceOf is the PCI address of the device that a request is about; empty where it is about none.
func deviceOf(r model.Request) string {
	if r.Origin == nil || strings.Count(r.Origin.Device, ":") != 2 {
		return ""
	}
	return r.Origin.Device
}
