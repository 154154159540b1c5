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
	rec      Record                  // stage pending here, also after it was stored as done
	recorded bool                    // the record is stored
	stored   Record                  // as it was stored last
	done     bool                    // the record is stored as done
	admitted *model.WorkloadEndpoint // what policy is enforced on
	hold     ipam.Reservation        // reserved addresses, not allocated yet
	chain    plugin.Chain
	at       int // index of the next plugin
	seg      segment
}

// segment is a run's built-in plugins up to a cut, which are planned and applied at once.
type segment struct {
	from, to int
	link     *linkBeforeIPAM       // the first plugin's interface, if IPAM needs it
	acts     int                   // index of the first IPAM act
	types    map[int]string        // IPAM types by plugin
	results  map[int]*model.Result // IPAM results by plugin
	answers  state.Answers         // of the kernel
}

// ended reports whether all plugins of the list are done.
func (r *run) ended() bool { return r.at >= len(r.job.Network.Plugins) }

// foreign reports whether the next plugin is not built in.
func (r *run) foreign() bool { return r.a.catalog.planners[r.job.Network.Plugins[r.at].Type] == nil }

// open begins a segment with the next built-in plugins. It ends before a foreign plugin, or one whose IPAM needs the
// interface and runs between two acts.
func (r *run) open() error {
	plugins := r.job.Network.Plugins
	j := r.at + 1
	for ; j < len(plugins) && r.a.catalog.planners[plugins[j].Type] != nil; j++ {
		typ, err := r.a.catalog.ipamType(plugins[j])
		if err != nil {
			return err
		}
		if r.a.catalog.needsLink(typ) {
			break
		}
	}
	r.seg = segment{from: r.at, to: j}
	r.chain.Pending = state.Fragment{}
	r.at = j
	return nil
}

// onlyStageDiffers reports whether the record is as it was stored last, except for its stage. Acts are not changed once
// their plan is stored.
func (r *run) onlyStageDiffers() bool {
	was, now := r.stored, r.rec
	return r.recorded && len(was.Acts) == len(now.Acts) && was.Result == now.Result && was.Observed == now.Observed &&
		was.Standby == now.Standby && was.Deferred == now.Deferred
}

// conclude stores the list's result and the observed interface in the record.
func (r *run) conclude(ctx context.Context) error {
	if r.chain.Prev == nil {
		r.chain.Prev = &model.Result{}
	}
	r.rec.Result = r.chain.Prev
	return r.inspect(ctx)
}

// applyError adds a hint to an error of applying a network's fragment.
func applyError(err error, network string, f state.Fragment) error {
	if fault := portError(err); fault != nil {
		return fault
	}
	if fault := macError(err, network, f); fault != nil {
		return fault
	}
	if fault := deviceError(err, network); fault != nil {
		return fault
	}
	if fault := duplicateError(err, network); fault != nil {
		return fault
	}
	if errors.Is(err, kernel.ErrFull) {
		return model.Errorf(model.CodeTryAgain, "a bridge holds 1,023 ports: use several bridges on this node, or ptp",
			"network %q: %w", network, err)
	}
	if errors.Is(err, kernel.ErrUsed) {
		return model.Errorf(model.CodeInvalidConf, "choose another master or VLAN", "network %q: %w", network, err)
	}
	if errors.Is(err, kernel.ErrNoVLANs) {
		return model.Errorf(
			model.CodeInvalidConf, "leave vlan and vlanTrunk out, or boot a kernel with CONFIG_BRIDGE_VLAN_FILTERING",
			"network %q: %w", network, err)
	}
	return fmt.Errorf("network %q: %w", network, err)
}
