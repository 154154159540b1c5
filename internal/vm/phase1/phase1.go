// SPDX-License-Identifier: Apache-2.0

// Package phase1 brings a machine's plan into its pod, with the rights of the node: links, addresses, settings and NAT
// rules, all that the hypervisor and the guest find there.
//
// # What is remembered
//
// A machine in a pod has a record of attach's kind, in the agent's ledger or, without an agent, in a file. Each network
// is an act of it, whose state is written before anything of it is done:
//
//	pending   planned, with the pre-image of what will change; nothing is done
//	started   some of it may be there
//	finished  all of it is there
//	leaving   some of it may be gone
//
// A call that was killed is taken up where it was: what is started is done again by the plan on disk, which is what
// makes that safe. The kernel is not asked again what the pod was like, because by then the pod is not like that. A
// call that fails takes back what it began; the pod's network is then as it was. When an agent starts, attach's recovery
// says what of the acts stays.
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

// Config is what all calls have.
type Config struct {
	// Records keeps the records; nil is a file each in Dir.
	Records attach.Memory
	// Dir is where the machines' locks are, and the records of a process without an agent. It need not outlive a boot.
	Dir string
	// Boot names the boot of the node: what was recorded in another one is void. "" is every boot.
	Boot string
	// Container is the sandbox of the pods of Start, where an agent attached them.
	Container string
	// Root is the root directory of the hypervisor's container, where Start gives the machine's user the node's vhost-net
	// and its macvtaps' devices, or "".
	Root string
	// Vhost, which may be nil, is asked for that device in UsableVhost's place: for tests.
	Vhost func() (number uint64, ok bool)
	Log   *slog.Logger
	// Step, which may be nil, is called before each thing that is done. Its error is that thing's error: for tests.
	Step failpoint.Hook
}

// Start brings the machine of the input into a pod: networks that are new are made, those that are absent now are taken
// away. The input's answers are asked for here. Pod names the pod among all that there ever are: what is recorded of
// another one is void.
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
			if err := w.leave(ctx, n.Interface.Name); err != nil {
				return Record{}, err
			}
		}
	}
	var begun []string
	if err = w.plan(ctx, in); err == nil {
		begun, err = w.begin(ctx)
	}
	if err == nil {
		err = w.give()
	}
	if err == nil && len(w.record.Networks) == 0 {
		err = w.rest(ctx)
	}
	if err != nil {
		return Record{}, errors.Join(err, w.takeBack(context.WithoutCancel(ctx), begun))
	}
	return w.record, nil
}

// wanted tells whether a network that is in the pod should be there.
func wanted(vm model.VM, nic model.VMInterface) bool {
	return slices.ContainsFunc(vm.Interfaces, func(o model.VMInterface) bool { return o.Name == nic.Name && !o.Absent })
}

// work is a call under way.
type work struct {
	Config
	spaces kernel.Spaces
	record Record
}

// plan adds the networks that are not in the pod yet to the record, as pending.
func (w *work) plan(ctx context.Context, in plan.Input) error {
	in.VM.Interfaces = slices.Clone(in.VM.Interfaces)
	was := slices.Clone(w.record.Networks)
	for i, nic := range in.VM.Interfaces {
		at := w.record.find(nic.Name)
		if at < 0 || nic.Absent {
			continue
		}
		if was := w.record.Networks[at].Interface.Binding; was != nic.Binding {
			return model.Faultf(model.CodeInvalidConf, "stop the machine first",
				"%s.domain.devices.interfaces[%d]: network %q is bound by %s in the pod, not by %s",
				in.VM.Path, nic.Index, nic.Name, was, nic.Binding)
		}
		w.record.Networks[at].Interface.Down, w.record.Networks[at].Device.Down = nic.Down, nic.Down
		in.VM.Interfaces[i].Absent = true // it still counts where links are numbered
	}
	if !slices.ContainsFunc(in.VM.Interfaces, func(nic model.VMInterface) bool { return !nic.Absent }) {
		if w.record.linked(was) {
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
		in.Ordinal = in.Ordinal || a.Found
	}
	if in.Answers, err = w.spaces.Observe(ctx, plan.Observe(in)); err != nil {
		return err
	}
	further, err := w.spaces.Observe(ctx, plan.ObserveFurther(in))
	if err != nil {
		return err
	}
	maps.Copy(in.Answers, further)
	p, err := plan.New(in)
	if err != nil {
		return err
	}
	for _, n := range p.Networks {
		mac := n.Device.MAC
		i := slices.IndexFunc(w.record.Networks, func(o Network) bool { return mac != "" && o.Device.MAC == mac })
		if i >= 0 {
			return model.Faultf(model.CodeInvalidConf, "choose another one",
				"%s.domain.devices.interfaces[%d].macAddress: %s is the address of interface %q already",
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

// begin does what is pending or started, in order, and tells what it began.
func (w *work) begin(ctx context.Context) (begun []string, err error) {
	for i := range w.record.Networks {
		n := &w.record.Networks[i]
		if n.State != Pending && n.State != Started {
			continue
		}
		begun = append(begun, n.Interface.Name)
		n.State = Started
		if err := w.save("started"); err != nil {
			return begun, err
		}
		if err := w.Step.At("pod"); err != nil {
			return begun, err
		}
		if err := w.spaces.Apply(ctx, w.record.Pod.Fragment); err != nil {
			return begun, w.fault(n.Interface, err)
		}
		if err := w.Step.At("apply"); err != nil {
			return begun, err
		}
		if err := w.apply(ctx, n); err != nil {
			return begun, w.fault(n.Interface, err)
		}
		n.State = Finished
		if err := w.save("finished"); err != nil {
			return begun, err
		}
	}
	return begun, nil
}

// apply brings a network about. Where the kernel has no dummy, a bridge without ports keeps the name of the pod's link:
// it is down, and holds addresses as well.
func (w *work) apply(ctx context.Context, n *Network) error {
	err := w.spaces.Apply(ctx, n.Fragment)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	i := slices.IndexFunc(n.Fragment.Pod.Links, func(l state.Link) bool { return l.Kind == state.Dummy })
	if i < 0 {
		return err
	}
	n.Fragment.Pod.Links[i].Kind = state.Bridge
	w.Log.Info("this kernel has no dummy: a bridge without ports keeps the name", "link", n.PodLink)
	if err := w.save("stand-in"); err != nil {
		return err
	}
	return w.spaces.Apply(ctx, n.Fragment)
}

// fault says which network an error is about, and what may help.
func (w *work) fault(nic model.VMInterface, err error) error {
	code, hint := model.CodeInternal, ""
	switch {
	case errors.Is(err, kernel.ErrForeign), errors.Is(err, kernel.ErrExists):
		code, hint = model.CodeExists, "take it away, or start the machine in a pod of its own"
	case errors.Is(err, kernel.ErrMissing), errors.Is(err, kernel.ErrGone):
		code, hint = model.CodeInvalidEnv, "the pod has changed since it was looked at: make it anew"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
		code, hint = model.CodeInvalidEnv,
			"the kernel needs tun and bridge; for masquerade nf_tables with nft_nat and nft_masq; for the direct binding eBPF, nft_fwd_netdev or act_mirred with cls_u32; "+
				"to guard a macvtap the egress hook of nftables (Linux 5.16, CONFIG_NETFILTER_EGRESS), or trust in the guest (--trust-guest)"
	}
	return model.Faultf(code, hint, "%s.domain.devices.interfaces[%d]: network %q: %w", w.record.Path, nic.Index,
		nic.Name, err)
}
