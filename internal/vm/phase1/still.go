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

// Still makes sure that what was made for a machine is in its pod yet: what has gone since, or has been changed, is
// told with the field of the network that it is about. It is for who gives the machine to a hypervisor.
func (r Record) Still(ctx context.Context, ns *netns.NS) error {
	s, closeAll, err := dial(ns)
	if err != nil {
		return err
	}
	defer closeAll()
	for _, n := range r.Networks {
		var lacking []state.Difference
		var links []state.Query
		for _, name := range []string{n.PodLink, n.Device.Target} {
			if name != "" {
				links = append(links, state.Query{Space: state.Pod, Link: name})
			}
		}
		seen, err := s.Observe(ctx, links)
		if err == nil {
			lacking, err = s.Diff(ctx, n.Fragment)
		}
		if err != nil {
			return err
		}
		what := ""
		for _, q := range links {
			if !seen[q].Found && what == "" {
				what = "the pod has no link " + q.Link
			}
		}
		if what == "" && len(lacking) > 0 {
			what = fmt.Sprint(lacking[0])
		}
		if what != "" {
			return model.Faultf(
				model.CodeInvalidEnv, "take the machine out of the pod and start it again (weft vm phase1 --undo)",
				"%s.domain.devices.interfaces[%d]: network %q is not in the pod any more as it was made: %s", r.Path,
				n.Interface.Index, n.Interface.Name, what)
		}
	}
	return nil
}

// Joins are those of the machine's networks that are finished.
func (r Record) Joins() (out []state.Join) {
	for _, n := range r.Networks {
		if n.State == Finished {
			out = append(out, n.Fragment.Pod.Joins...)
		}
	}
	return out
}

// Rejoin brings back what somebody has taken away of joins in a pod, and tells what that was. Where a tap or a link has
// gone there is nothing to join: who takes it away means the guest.
func Rejoin(ctx context.Context, ns *netns.NS, joins []state.Join) ([]state.Difference, error) {
	if len(joins) == 0 {
		return nil, nil
	}
	s, closeAll, err := dial(ns)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	f := state.Fragment{Owner: "joins", Pod: state.Space{Joins: joins}}
	lacking, err := s.Diff(ctx, f)
	if err != nil || len(lacking) == 0 {
		return nil, err
	}
	if err := s.Apply(ctx, f); err != nil && !errors.Is(err, kernel.ErrMissing) {
		return lacking, err
	}
	return lacking, nil
}
