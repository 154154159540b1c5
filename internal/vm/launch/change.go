// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// Change is what a machine that runs is asked to become: one of these.
type Change struct {
	// Attach is an interface that it gets, Detach the name of one that it loses.
	Attach *model.VMInterface `json:"attach,omitempty"`
	Detach string             `json:"detach,omitempty"`
	// Link is the interface whose carrier is given or taken.
	Link string `json:"link,omitempty"`
	Up   bool   `json:"up,omitempty"`
	// Machine has the interfaces that it shall have, as its manifest says now.
	Machine *model.VM `json:"machine,omitempty"`
}

// apply is the machine with the change. What is wrong with it is told in the words of who asked.
func (c Change) apply(vm model.VM) (model.VM, error) {
	vm.Interfaces = slices.Clone(vm.Interfaces)
	at := func(name string) int {
		return slices.IndexFunc(vm.Interfaces, func(o model.VMInterface) bool { return o.Name == name })
	}
	switch {
	case c.Attach != nil:
		nic := *c.Attach
		if at(nic.Name) >= 0 {
			return vm, model.Faultf(model.CodeExists, "choose another name", "machine %s has an interface %q already",
				vm.Key(), nic.Name)
		}
		for _, o := range vm.Interfaces {
			nic.Index, nic.Network.Index = max(nic.Index, o.Index+1), max(nic.Network.Index, o.Network.Index+1)
		}
		vm.Interfaces = append(vm.Interfaces, nic)
	case c.Machine != nil:
		if c.Machine.Key() != vm.Key() {
			return vm, model.Faultf(model.CodeInvalidConf, "", "machine %s cannot become machine %s", vm.Key(), c.Machine.Key())
		}
		vm.Interfaces = slices.DeleteFunc(slices.Clone(c.Machine.Interfaces), func(o model.VMInterface) bool {
			return o.Absent
		})
	default:
		name := c.Detach + c.Link
		i := at(name)
		if i < 0 {
			return vm, model.Faultf(model.CodeInvalidConf, "see `weft vm status "+vm.Key()+"`", "machine %s has no interface %q",
				vm.Key(), name)
		}
		if c.Detach != "" {
			vm.Interfaces = slices.Delete(vm.Interfaces, i, i+1)
			break
		}
		if vm.Interfaces[i].Binding == model.VMSRIOV {
			return vm, model.Faultf(model.CodeInvalidConf, "",
				"interface %q: the link of a device of the guest's own cannot be set", name)
		}
		vm.Interfaces[i].Down = !c.Up
	}
	return vm, nil
}

// difference is what must be done to bring a machine from one to another. What a card is cannot change while it is
// there.
func difference(was, is model.VM) (gone, fresh, links []model.VMInterface, err error) {
	of := func(vm model.VM, name string) (model.VMInterface, bool) {
		i := slices.IndexFunc(vm.Interfaces, func(o model.VMInterface) bool { return o.Name == name && !o.Absent })
		if i < 0 {
			return model.VMInterface{}, false
		}
		return vm.Interfaces[i], true
	}
	for _, o := range was.Interfaces {
		n, still := of(is, o.Name)
		if o.Absent || still {
			continue
		}
		if n = o; n.Network.Primary {
			return nil, nil, nil, model.Faultf(model.CodeInvalidConf, "take its link down, or stop the machine",
				"interface %q: the pod's default network cannot be taken away", n.Name)
		}
		gone = append(gone, n)
	}
	for _, n := range is.Interfaces {
		o, known := of(was, n.Name)
		switch {
		case n.Absent:
		case !known && (n.Network.Primary || n.Binding == model.VMMasquerade || n.Binding == model.VMSRIOV):
			return nil, nil, nil, model.Faultf(model.CodeInvalidConf, "bind it by bridge, to a network beside the pod's",
				"interface %q: %s cannot be attached to a machine that runs", n.Name, n.Binding)
		case !known:
			fresh = append(fresh, n)
		case !same(o, n):
			return nil, nil, nil, model.Faultf(model.CodeInvalidConf, "detach it and attach it anew, or stop the machine",
				"interface %q: only its state can change while the machine runs", n.Name)
		case o.Down != n.Down:
			links = append(links, n)
		}
	}
	return gone, fresh, links, nil
}

// same tells whether an interface is what it was, but for its carrier and its place in the manifest.
func same(a, b model.VMInterface) bool {
	b.Down, b.Index, b.Network.Index = a.Down, a.Index, a.Network.Index
	was, err1 := json.Marshal(a)
	is, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(was, is)
}

// become brings a machine that runs to what it shall be. What fails leaves it as it was, but for what has gone already.
func (l *launch) become(ctx context.Context, c Change) error {
	l.changing.Lock()
	defer l.changing.Unlock()
	if l.ended {
		return model.Faultf(model.CodeInvalidEnv, "", "machine %s ends", l.Input.VM.Key())
	}
	next, err := c.apply(l.Input.VM)
	if err != nil {
		return err
	}
	gone, fresh, links, err := difference(l.Input.VM, next)
	if err != nil {
		return err
	}
	for _, nic := range gone {
		if err := l.unplug(ctx, nic); err != nil {
			return err
		}
	}
	for _, nic := range links {
		if err := l.setLink(ctx, nic); err != nil {
			return err
		}
	}
	if len(fresh) > 0 {
		return l.plug(ctx, next, fresh)
	}
	return nil
}

// unplug takes an interface from the guest, then from the pod.
func (l *launch) unplug(ctx context.Context, nic model.VMInterface) error {
	if n, ok := l.network(nic.Name); ok {
		if err := l.machine.Unplug(ctx, n.Device); err != nil {
			return err
		}
	}
	vm := l.Input.VM
	vm.Interfaces = slices.DeleteFunc(slices.Clone(vm.Interfaces), func(o model.VMInterface) bool {
		return o.Name == nic.Name
	})
	// The guest has let go: the pod follows whoever has stopped waiting.
	return l.settle(context.WithoutCancel(ctx), vm)
}

// settle brings the pod to what a machine needs that has lost something or has another link state.
func (l *launch) settle(ctx context.Context, vm model.VM) error {
	ctx, cancel := context.WithTimeout(ctx, restoreTime)
	defer cancel()
	in := l.Input
	in.VM = vm
	record, err := l.Host.Start(ctx, l.Pod, in)
	if err != nil {
		return err
	}
	l.Input.VM, l.record = vm, record
	err = l.attached(ctx, vm)
	l.status.Interfaces = interfaces(l.record, l.addrs)
	return errors.Join(err, l.say(Running))
}

// attached has the pod attached to a machine's networks, where somebody does that.
func (l *launch) attached(ctx context.Context, vm model.VM) error {
	if l.Networks == nil {
		return nil
	}
	return l.Networks(ctx, vm)
}

func (l *launch) setLink(ctx context.Context, nic model.VMInterface) error {
	n, ok := l.network(nic.Name)
	if !ok {
		return fmt.Errorf("interface %s: nothing is known of it", nic.Name)
	}
	if err := l.machine.SetLink(ctx, n.Device, !nic.Down); err != nil {
		return err
	}
	vm := l.Input.VM
	vm.Interfaces = slices.Clone(vm.Interfaces)
	for i := range vm.Interfaces {
		if vm.Interfaces[i].Name == nic.Name {
			vm.Interfaces[i].Down = nic.Down
		}
	}
	return l.settle(context.WithoutCancel(ctx), vm)
}

// plug gives the guest interfaces that are new, when the pod has them.
func (l *launch) plug(ctx context.Context, next model.VM, fresh []model.VMInterface) (err error) {
	was, addrs := l.Input.VM, maps.Clone(l.addrs)
	var plugged []model.VMDevice
	defer func() {
		if err == nil {
			return
		}
		whatever, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTime)
		defer cancel()
		for _, d := range plugged {
			err = errors.Join(err, l.machine.Unplug(whatever, d))
		}
		l.addrs = addrs
		err = errors.Join(err, l.settle(whatever, was))
	}()
	if err := l.attached(ctx, next); err != nil {
		return err
	}
	in := l.Input
	in.VM = next
	for _, nic := range fresh {
		if l.addrs[nic.Name], err = addressesOf(l.Pod, in, nic); err != nil {
			return err
		}
	}
	record, err := l.Host.Start(ctx, l.Pod, in)
	if err != nil {
		return err
	}
	l.record = record
	for _, nic := range fresh {
		n, _ := l.network(nic.Name)
		if err := l.plugOne(ctx, n); err != nil {
			return err
		}
		plugged = append(plugged, n.Device)
	}
	l.Input.VM = next
	l.speak(context.WithoutCancel(ctx))
	l.status.Interfaces = interfaces(l.record, l.addrs)
	return l.say(Running)
}

func (l *launch) plugOne(ctx context.Context, n phase1.Network) error {
	if l.Hypervisor != nil { // it opens the link by itself
		return l.machine.Plug(ctx, n.Device, nil, nil)
	}
	taps, err := l.open(n)
	if err != nil {
		return err
	}
	vhost := l.vhost(n.Device)
	defer func() { closeAll(taps); closeAll(vhost) }()
	return l.machine.Plug(ctx, n.Device, taps, vhost)
}

func (l *launch) network(name string) (phase1.Network, bool) {
	for _, n := range l.record.Networks {
		if n.Interface.Name == name {
			return n, true
		}
	}
	return phase1.Network{}, false
}
