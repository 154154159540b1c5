// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// switcher switches finished attachments between active and standby.
type switcher struct {
	host    *kernel.Conn
	boot    string
	locks   *lockSet
	records *notifyingStore
	catalog *catalog
	hook    *policyHook
	fail    failpoint.Hook
}

// During a live migration a VM has two attachments with the same addresses. One of them is the standby: it is complete
// and policy is enforced, but its node does not route to the addresses, does not accept packets from them and does not
// advertise them.

// activate makes a finished standby attachment the active one: routes are applied in one batch, IPAM transfers the
// addresses, and the other components are notified. It is idempotent. It sends no gratuitous ARP: the addresses are
// routed.
func (s *switcher) activate(ctx context.Context, key model.AttachmentKey) error {
	return s.withFinished(ctx, key, "activate", func(rec Record) error {
		addrState := rec.addressState()
		if rec.Standby {
			rec = rec.active()
			if err := s.records.put(rec); err != nil {
				return err
			}
			if err := s.fail.At("after record active"); err != nil {
				return err
			}
		}
		if err := s.applyAddressState(ctx, rec, addrState); err != nil {
			return err
		}
		if err := s.transferAddresses(ctx, rec); err != nil {
			return err
		}
		return s.finishSwitch(ctx, rec)
	})
}

// retire makes a finished attachment the standby: this node no longer routes to its addresses, because another
// attachment has them or is about to.
func (s *switcher) retire(ctx context.Context, key model.AttachmentKey) error {
	return s.withFinished(ctx, key, "retire", func(rec Record) error {
		addrState := rec.addressState()
		if !rec.Standby {
			rec = rec.standby()
			if err := s.records.put(rec); err != nil {
				return err
			}
			if err := s.fail.At("after record standby"); err != nil {
				return err
			}
		}
		f := state.Fragment{Owner: plugin.Owner(key), Host: addrState}
		if err := (kernel.Spaces{Host: s.host}).Remove(ctx, f); err != nil {
			return err
		}
		return s.finishSwitch(ctx, rec)
	})
}

// withFinished calls do with a finished attachment while it holds the locks.
func (s *switcher) withFinished(
	ctx context.Context,
	key model.AttachmentKey,
	name string,
	do func(Record) error,
) error {
	release, err := s.locks.main.Container(ctx, key.ContainerID)
	if err != nil {
		return err
	}
	defer release()
	leave, err := s.locks.main.RLock(ctx)
	if err != nil {
		return err
	}
	defer leave()
	rec, found, err := s.records.get(key)
	switch {
	case err != nil:
		return err
	case !found:
		return model.Errorf(model.CodeUnknownContainer, "", "%s: there is no attachment %s", name, key)
	case rec.Stage != Done || rec.Boot != s.boot:
		return model.Errorf(model.CodeTryAgain, "", "%s: attachment %s is %s", name, key, rec.Stage)
	}
	if err := s.fail.At("before " + name); err != nil {
		return err
	}
	if err := do(rec); err != nil {
		return err
	}
	return s.fail.At("after " + name)
}

// applyAddressState applies the routes to the addresses, and the neighbors that they need, in one batch.
func (s *switcher) applyAddressState(ctx context.Context, rec Record, addrState state.Space) error {
	f := state.Fragment{Owner: plugin.Owner(rec.Key()), Host: addrState}
	for _, n := range rec.Fragment().Host.Neighs {
		if slices.ContainsFunc(
			addrState.Routes,
			func(r state.Route) bool { return r.Link == n.Link && r.Dst.Addr() == n.IP },
		) {
			f.Host.Neighs = append(f.Host.Neighs, n)
		}
	}
	if f.Host.Empty() {
		return nil
	}
	if err := (kernel.Spaces{Host: s.host}).Apply(ctx, f); err != nil {
		return err
	}
	return s.fail.At("after address state")
}

// transferAddresses has the allocators transfer the record's addresses to this attachment.
func (s *switcher) transferAddresses(ctx context.Context, rec Record) error {
	for _, act := range rec.Acts {
		if act.Kind != ActIPAM || act.Plugin >= len(rec.Network.Plugins) {
			continue
		}
		conf := rec.Network.Plugins[act.Plugin]
		typ, err := s.catalog.ipamType(conf)
		if err != nil {
			return err
		}
		mover := s.catalog.ipamCapabilities(typ).Transfer
		if mover == nil {
			continue
		}
		q := allocateRequest(rec.Request, conf)
		for _, ip := range act.IPs {
			q.Held = append(q.Held, ip.Address.Addr())
		}
		if q.PodRequest, err = s.catalog.requestedAddresses(rec.Request, conf); err != nil {
			return err
		}
		if err := mover.Transfer(ctx, q); err != nil {
			return err
		}
	}
	return s.fail.At("after transfer")
}

// finishSwitch marks a switch as finished and notifies the other components.
func (s *switcher) finishSwitch(ctx context.Context, rec Record) error {
	if rec.Switching {
		rec.Switching = false
		if err := s.records.put(rec); err != nil {
			return err
		}
	}
	return s.hook.standbyChanged(ctx, rec)
}
