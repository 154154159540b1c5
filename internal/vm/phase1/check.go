// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// Check verifies that what was applied for a VM is still in its pod. The error names the field of the network that is
// changed or missing. Call it before the VM's devices are passed to a hypervisor.
func (r Record) Check(ctx context.Context, ns *netns.NS) error {
	s, closeAll, err := dial(ns)
	if err != nil {
		return err
	}
	defer closeAll()
	for _, n := range r.Networks {
		var diff []state.Difference
		var links []state.Query
		for _, name := range []string{n.PodLink, n.Device.Target} {
			if name != "" {
				links = append(links, state.Query{Space: state.Pod, Link: name})
			}
		}
		seen, err := s.Observe(ctx, links)
		if err == nil {
			diff, err = s.Diff(ctx, n.Fragment)
		}
		if err != nil {
			return err
		}
		problem := ""
		for _, q := range links {
			if !seen[q].Found && problem == "" {
				problem = "the pod has no link " + q.Link
			}
		}
		if problem == "" && len(diff) > 0 {
			problem = fmt.Sprint(diff[0])
		}
		if problem != "" {
			return model.Errorf(
				model.CodeInvalidEnv, "undo the VM in the pod and start it again (weft vm phase1 --undo)",
				"%s.domain.devices.interfaces[%d]: network %q has changed in the pod: %s", r.Path,
				n.Interface.Index, n.Interface.Name, problem)
		}
	}
	return nil
}

// Joins returns those of the finished networks.
func (r Record) Joins() (out []state.Join) {
	for _, n := range r.Networks {
		if n.State == Finished {
			out = append(out, n.Fragment.Pod.Joins...)
		}
	}
	return out
}

// Rejoin repairs joins in a pod that were removed externally, and returns the differences that it found. Without the
// tap or the link it repairs nothing: removing one of these disconnects the guest on purpose.
func Rejoin(ctx context.Context, ns *netns.NS, joins []state.Join) ([]state.Difference, error) {
	if len(joins) == 0 {
		return nil, nil
	}
	s, closeAll, err := dial(ns)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	f := fragmentOf(joins)
	diff, err := s.Diff(ctx, f)
	if err != nil || len(diff) == 0 {
		return nil, err
	}
	if err := s.Apply(ctx, f); err != nil && !errors.Is(err, kernel.ErrMissing) {
		return diff, err
	}
	return diff, nil
}

// Joined reports whether joins in a pod are as recorded. It changes nothing.
func Joined(ctx context.Context, ns *netns.NS, joins []state.Join) (bool, error) {
	s, closeAll, err := dial(ns)
	if err != nil {
		return false, err
	}
	defer closeAll()
	diff, err := s.Diff(ctx, fragmentOf(joins))
	return len(diff) == 0, err
}

func fragmentOf(joins []state.Join) state.Fragment {
	return state.Fragment{Owner: "joins", Pod: state.Space{Joins: joins}}
}
