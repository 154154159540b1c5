// SPDX-License-Identifier: Apache-2.0

// Package phase1 applies a VM's plan to its pod's network namespace, with the privileges of the node: the links,
// addresses, sysctls and NAT rules that the hypervisor and the guest need. The name is KubeVirt's: virt-handler's
// privileged phase 1.
//
// # State
//
// A VM in a pod has an attach.Record, in the agent's ledger or, without an agent, in a file. Each network is an act of
// the record. Its state is stored before the kernel is changed:
//
//	pending   planned, with the pre-image of what will change; nothing is applied
//	started   may be partly applied
//	finished  applied
//	leaving   may be partly removed
//
// A call that was killed is resumed from the stored plan: a started network is applied again. The plan is not
// recomputed, because the pod no longer has the state that the plan was computed from. A call that fails rolls back
// what it applied. When an agent starts, attach's recovery decides which networks stay.
package phase1

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/state"
)

// Config configures all calls.
type Config struct {
	// Records stores the records; nil is one file each in Dir.
	Records attach.RecordStore
	// Dir has the locks of the VMs, and the records if there is no agent. It need not survive a reboot.
	Dir string
	// Boot is the node's boot ID: records of another boot are void. "" if boots are not distinguished.
	Boot string
	// Container is the sandbox ID of the pods of Start, if an agent attached them.
	Container string
	// Root is the root directory of the hypervisor's container, or "". In it, Start grants the hypervisor's user
	// vhost-net and the devices of macvtaps.
	Root string
	// Vhost, if set, replaces UsableVhost: for tests.
	Vhost func() (number uint64, ok bool)
	Log   *slog.Logger
	// Step, if set, is called before each step; the step fails with its error: for tests.
	Step failpoint.Hook
}

// Start applies the input's VM to a pod: it creates networks that are new and removes those that are absent. It
// observes the kernel for the input. Pod identifies the pod across its node's lifetime: records of another pod are
// void.
func (c Config) Start(ctx context.Context, ns *netns.NS, pod string, in plan.Input) (Record, error) {
	unlock, err := c.lock(ctx, in.VM.Key())
	if err != nil {
		return Record{}, err
	}
	defer unlock()
	spaces, closeAll, err := dial(ns)
	if err != nil {
		return Record{}, err
	}
	defer closeAll()
	w, err := c.open(spaces, in.VM.Key(), pod)
	if err != nil {
		return Record{}, err
	}
	for _, n := range slices.Backward(slices.Clone(w.record.Networks)) {
		if n.State == Leaving || !wanted(in.VM, n.Interface) {
			if err := w.removeNetwork(ctx, n.Interface.Name); err != nil {
				return Record{}, err
			}
		}
	}
	var applied []string
	if err = w.plan(ctx, in); err == nil {
		applied, err = w.applyPending(ctx)
	}
	if err == nil {
		err = w.grantDevices()
	}
	if err == nil && len(w.record.Networks) == 0 {
		err = w.releaseShared(ctx)
	}
	if err != nil {
		return Record{}, errors.Join(err, w.rollback(context.WithoutCancel(ctx), applied))
	}
	return w.record, nil
}

// wanted reports whether a network of the pod is still in the VM's specification.
func wanted(vm model.VM, nic model.VMInterface) bool {
	return slices.ContainsFunc(vm.Interfaces, func(o model.VMInterface) bool { return o.Name == nic.Name && !o.Absent })
}

// call is one call of Start or Undo.
type call struct {
	Config
	spaces kernel.Spaces
	record Record
}

// plan adds the networks that the pod does not have yet to the record, as pending.
func (w *call) plan(ctx context.Context, in plan.Input) error {
	in.VM.Interfaces = slices.Clone(in.VM.Interfaces)
	was := slices.Clone(w.record.Networks)
	for i, nic := range in.VM.Interfaces {
		at := w.record.find(nic.Name)
		if at < 0 || nic.Absent {
			continue
		}
		if was := w.record.Networks[at].Interface.Binding; was != nic.Binding {
			return model.Errorf(model.CodeInvalidConf, "stop the VM first",
				"%s.domain.devices.interfaces[%d]: network %q is bound by %s in the pod, not by %s",
				in.VM.Path, nic.Index, nic.Name, was, nic.Binding)
		}
		w.record.Networks[at].Interface.Down, w.record.Networks[at].Device.Down = nic.Down, nic.Down
		in.VM.Interfaces[i].Absent = true // it still counts for ordinal names
	}
	if !slices.ContainsFunc(in.VM.Interfaces, func(nic model.VMInterface) bool { return !nic.Absent }) {
		if w.record.sameLinkStates(was) {
			return nil
		}
		return w.save("links")
	}
	const ordinal = "net1"
	seen, err := w.spaces.Observe(ctx, []state.Query{{Space: state.Pod, Link: ordinal}})
	if err != nil {
		return err
	}
	for _, a := range seen {
		in.OrdinalNames = in.OrdinalNames || a.Found
	}
	if in.Answers, err = w.spaces.Observe(ctx, plan.Observe(in)); err != nil {
		return err
	}
	more, err := w.spaces.Observe(ctx, plan.ObserveFurther(in))
	if err != nil {
		return err
	}
	maps.Copy(in.Answers, more)
	p, err := plan.New(in)
	if err != nil {
		return err
	}
	for _, n := range p.Networks {
		mac := n.Device.MAC
		i := slices.IndexFunc(w.record.Networks, func(o Network) bool { return mac != "" && o.Device.MAC == mac })
		if i >= 0 {
			return model.Errorf(model.CodeInvalidConf, "choose another one",
				"%s.domain.devices.interfaces[%d].macAddress: %s is already the address of interface %q",
				in.VM.Path, n.Interface.Index, mac, w.record.Networks[i].Interface.Name)
		}
	}
	w.record.Path, w.record.Owner, w.record.Netns = in.VM.Path, in.VM.Owner, w.spaces.PodNS.Path()
	if w.record.Namespace, err = Identity(w.spaces.PodNS); err != nil {
		return err
	}
	w.record.Container = cmp.Or(w.Container, w.record.Container)
	w.record.add(p)
	return w.save("pending")
}

// applyPending applies the pending and started networks in order. It returns the names of those that it began.
func (w *call) applyPending(ctx context.Context) (applied []string, err error) {
	for i := range w.record.Networks {
		n := &w.record.Networks[i]
		if n.State != Pending && n.State != Started {
			continue
		}
		applied = append(applied, n.Interface.Name)
		n.State = Started
		if err := w.save("started"); err != nil {
			return applied, err
		}
		if err := w.Step.At("pod"); err != nil {
			return applied, err
		}
		if err := w.spaces.Apply(ctx, w.record.Shared.Fragment); err != nil {
			return applied, w.wrapError(n.Interface, err)
		}
		if err := w.Step.At("apply"); err != nil {
			return applied, err
		}
		if err := w.apply(ctx, n); err != nil {
			return applied, w.wrapError(n.Interface, err)
		}
		n.State = Finished
		if err := w.save("finished"); err != nil {
			return applied, err
		}
	}
	return applied, nil
}

// apply applies a network. If the kernel has no dummy links, a bridge without ports keeps the name of the pod's link:
// it is down, and can have addresses, too.
func (w *call) apply(ctx context.Context, n *Network) error {
	err := w.spaces.Apply(ctx, n.Fragment)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	i := slices.IndexFunc(n.Fragment.Pod.Links, func(l state.Link) bool { return l.Kind == state.Dummy })
	if i < 0 {
		return err
	}
	n.Fragment.Pod.Links[i].Kind = state.Bridge
	w.Log.Info("kernel has no dummy links; a bridge without ports keeps the name of the pod's link", "link", n.PodLink)
	if err := w.save("stand-in"); err != nil {
		return err
	}
	return w.spaces.Apply(ctx, n.Fragment)
}

// wrapError adds the network and a hint to an error.
func (w *call) wrapError(nic model.VMInterface, err error) error {
	code, hint := model.CodeInternal, ""
	switch {
	case errors.Is(err, kernel.ErrForeign), errors.Is(err, kernel.ErrExists):
		code, hint = model.CodeExists, "delete it, or start the VM in a pod of its own"
	case errors.Is(err, kernel.ErrMissing), errors.Is(err, kernel.ErrGone):
		code, hint = model.CodeInvalidEnv, "the pod has changed during the call; re-create it"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
		code, hint = model.CodeInvalidEnv,
			"the kernel needs tun and bridge; for masquerade nf_tables with nft_nat and nft_masq; for the direct binding eBPF, nft_fwd_netdev or act_mirred with cls_u32; "+
				"for the source guard of a macvtap the egress hook of nftables (Linux 5.16, CONFIG_NETFILTER_EGRESS), or a trusted guest (--trust-guest)"
	}
	return model.Errorf(code, hint, "%s.domain.devices.interfaces[%d]: network %q: %w", w.record.Path, nic.Index,
		nic.Name, err)
}
