// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// Still makes sure that what was made for a machine is in its pod yet: what has gone since, or has been changed, is told with the
// field of the network that it is about. It is for who gives the machine to a hypervisor.
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
			return model.Faultf(model.CodeInvalidEnv, "take the machine out of the pod and start it again (weft vm phase1 --undo)",
				"%s.domain.devices.interfaces[%d]: network %q is not in the pod any more as it was made: %s", r.Path, n.Interface.Index, n.Interface.Name, what)
		}
	}
	return nil
}
