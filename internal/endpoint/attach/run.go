// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// run is the ADD of one network of a batch.
type run struct {
	a        *adder
	index    int // among the jobs of the batch
	job      Job
	spaces   kernel.Spaces
	rec      Record                  // pending, also when it was written that it is done
	promised bool                    // the record has been written
	done     bool                    // and says that the attachment is done
	admitted *model.WorkloadEndpoint // what the guard has been told
	hold     ipam.Hold               // addresses that are chosen and not taken
	chain    plugin.Chain
	at       int // the plugin that comes next
	seg      segment
}

// segment is built-in plugins of a run up to a cut, which are planned and applied in one.
type segment struct {
	from, to int
	made     *linked               // the first one's interface, where its addresses need that
	acts     int                   // where the IPAM acts begin
	types    map[int]string        // of the IPAM sections, by plugin
	given    map[int]*model.Result // by them
	known    state.Answers         // about the kernel
}

// ended reports whether nothing is left of the list.
func (r *run) ended() bool { return r.at >= len(r.job.Network.Plugins) }

// foreign reports whether the plugin that comes next is not built in.
func (r *run) foreign() bool { return r.a.catalog.planners[r.job.Network.Plugins[r.at].Type] == nil }

// open begins the segment of the built-in plugins that come next. They must stop before a foreign plugin, or one whose
// IPAM needs the interface and is asked between two acts.
func (r *run) open() error {
	plugins := r.job.Network.Plugins
	j := r.at + 1
	for ; j < len(plugins) && r.a.catalog.planners[plugins[j].Type] != nil; j++ {
		typ, err := r.a.catalog.ipamType(plugins[j])
		if err != nil {
			return err
		}
		if r.a.catalog.late(typ) {
			break
		}
	}
	r.seg = segment{from: r.at, to: j}
	r.chain.Open = state.Fragment{}
	r.at = j
	return nil
}

// conclude has the record say what the list came to, and what is seen of the interface.
func (r *run) conclude(ctx context.Context) error {
	if r.chain.Prev == nil {
		r.chain.Prev = &model.Result{}
	}
	r.rec.Result = r.chain.Prev
	return r.look(ctx)
}

// applyFault says what a person can do about an error of applying a network's fragment.
func applyFault(err error, network string, f state.Fragment) error {
	if fault := ofPorts(err); fault != nil {
		return fault
	}
	if fault := ofMAC(err, network, f); fault != nil {
		return fault
	}
	if errors.Is(err, kernel.ErrFull) {
		return model.Faultf(model.CodeTryAgain, "a bridge holds 1,023 ports: use several bridges on this node, or ptp",
			"network %q: %w", network, err)
	}
	if errors.Is(err, kernel.ErrUsed) {
		return model.Faultf(model.CodeInvalidConf, "choose another master or VLAN", "network %q: %w", network, err)
	}
	if errors.Is(err, kernel.ErrNoVlans) {
		return model.Faultf(
			model.CodeInvalidConf, "leave vlan and vlanTrunk out, or boot a kernel with CONFIG_BRIDGE_VLAN_FILTERING",
			"network %q: %w", network, err)
	}
	return fmt.Errorf("network %q: %w", network, err)
}
