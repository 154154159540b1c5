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

// Change is a change of a running VM: one of these.
type Change struct {
	// Attach is an interface to hot-plug, Detach the name of one to unplug.
	Attach *model.VMInterface `json:"attach,omitempty"`
	Detach string             `json:"detach,omitempty"`
	// Link is the interface whose carrier is set to Up.
	Link string `json:"link,omitempty"`
	Up   bool   `json:"up,omitempty"`
	// VM has the wanted interfaces, as the changed manifest has them.
	VM *model.VM `json:"machine,omitempty"`
}

// apply returns the VM with the change. Errors are in terms of the request.
func (c Change) apply(vm model.VM) (model.VM, error) {
	vm.Interfaces = slices.Clone(vm.Interfaces)
	at := func(name string) int {
		return slices.IndexFunc(vm.Interfaces, func(o model.VMInterface) bool { return o.Name == name })
	}
	switch {
	case c.Attach != nil:
		nic := *c.Attach
		if at(nic.Name) >= 0 {
			return vm, model.Errorf(model.CodeExists, "choose another name", "VM %s already has an interface %q",
				vm.Key(), nic.Name)
		}
		for _, o := range vm.Interfaces {
			nic.Index, nic.Network.Index = max(nic.Index, o.Index+1), max(nic.Network.Index, o.Network.Index+1)
		}
		vm.Interfaces = append(vm.Interfaces, nic)
	case c.VM != nil:
		if c.VM.Key() != vm.Key() {
			return vm, model.Errorf(model.CodeInvalidConf, "", "VM %s cannot become VM %s", vm.Key(), c.VM.Key())
		}
		vm.Interfaces = slices.DeleteFunc(slices.Clone(c.VM.Interfaces), func(o model.VMInterface) bool {
			return o.Absent
		})
	default:
		name := c.Detach + c.Link
		i := at(name)
		if i < 0 {
			return vm, model.Errorf(model.CodeInvalidConf, "see `weft vm status "+vm.Key()+"`", "VM %s has no interface %q",
				vm.Key(), name)
		}
		if c.Detach != "" {
			vm.Interfaces = slices.Delete(vm.Interfaces, i, i+1)
			break
		}
		if vm.Interfaces[i].Binding == model.VMSRIOV {
			return vm, model.Errorf(model.CodeInvalidConf, "",
				"interface %q: the link of an SR-IOV device cannot be set", name)
		}
		vm.Interfaces[i].Down = !c.Up
	}
	return vm, nil
}

// diff returns the steps from one VM to another. The properties of a network device cannot change while it is plugged.
func diff(was, is model.VM) (removed, added, links []model.VMInterface, err error) {
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
			return nil, nil, nil, model.Errorf(model.CodeInvalidConf, "set its link down, or stop the VM",
				"interface %q: the pod's default network cannot be unplugged", n.Name)
		}
		removed = append(removed, n)
	}
	for _, n := range is.Interfaces {
		o, known := of(was, n.Name)
		switch {
		case n.Absent:
		case !known && (n.Network.Primary || n.Binding == model.VMMasquerade || n.Binding == model.VMSRIOV):
			return nil, nil, nil, model.Errorf(model.CodeInvalidConf, "use the bridge binding and a secondary network",
				"interface %q: %s cannot be hot-plugged", n.Name, n.Binding)
		case !known:
			added = append(added, n)
		case !sameSpec(o, n):
			return nil, nil, nil, model.Errorf(model.CodeInvalidConf, "detach and attach it, or stop the VM",
				"interface %q: only its state can change while the VM runs", n.Name)
		case o.Down != n.Down:
			links = append(links, n)
		}
	}
	return removed, added, links, nil
}

// sameSpec reports whether two interfaces differ only in their carrier and their place in the manifest.
func sameSpec(a, b model.VMInterface) bool {
	b.Down, b.Index, b.Network.Index = a.Down, a.Index, a.Network.Index
	was, err1 := json.Marshal(a)
	is, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(was, is)
}

// change applies a change to a running VM. A step that fails changes nothing; interfaces that were unplugged before it
// stay unplugged.
func (l *launch) change(ctx context.Context, c Change) error {
	l.changing.Lock()
	defer l.changing.Unlock()
	if l.ended {
		return model.Errorf(model.CodeInvalidEnv, "", "VM %s is stopping", l.Input.VM.Key())
	}
	next, err := c.apply(l.Input.VM)
	if err != nil {
		return err
	}
	removed, added, links, err := diff(l.Input.VM, next)
	if err != nil {
		return err
	}
	for _, nic := range removed {
		if err := l.unplug(ctx, nic); err != nil {
			return err
		}
	}
	for _, nic := range links {
		if err := l.setLink(ctx, nic); err != nil {
			return err
		}
	}
	if len(added) > 0 {
		return l.plug(ctx, next, added)
	}
	return nil
}

// unplug removes an interface from the guest, then from the pod.
func (l *launch) unplug(ctx context.Context, nic model.VMInterface) error {
	if n, ok := l.network(nic.Name); ok {
		if err := l.vm.Unplug(ctx, n.Device); err != nil {
			return err
		}
	}
	vm := l.Input.VM
	vm.Interfaces = slices.DeleteFunc(slices.Clone(vm.Interfaces), func(o model.VMInterface) bool {
		return o.Name == nic.Name
	})
	// The guest has released it: the pod must follow even if the client is gone.
	return l.updatePod(context.WithoutCancel(ctx), vm)
}

// updatePod updates the pod after an interface was unplugged or its link state was changed.
func (l *launch) updatePod(ctx context.Context, vm model.VM) error {
	ctx, cancel := context.WithTimeout(ctx, restoreTime)
	defer cancel()
	in := l.Input
	in.VM = vm
	record, err := l.Host.Start(ctx, l.Pod, in)
	if err != nil {
		return err
	}
	l.Input.VM, l.record = vm, record
	err = l.attachNetworks(ctx, vm)
	l.status.Interfaces = interfaces(l.record, l.addrs)
	return errors.Join(err, l.writePhase(Running))
}

// attachNetworks attaches the pod to the VM's networks, if Config has a function for it.
func (l *launch) attachNetworks(ctx context.Context, vm model.VM) error {
	if l.AttachNetworks == nil {
		return nil
	}
	return l.AttachNetworks(ctx, vm)
}

func (l *launch) setLink(ctx context.Context, nic model.VMInterface) error {
	n, ok := l.network(nic.Name)
	if !ok {
		return fmt.Errorf("interface %s: it is not in the pod", nic.Name)
	}
	if err := l.vm.SetLink(ctx, n.Device, !nic.Down); err != nil {
		return err
	}
	vm := l.Input.VM
	vm.Interfaces = slices.Clone(vm.Interfaces)
	for i := range vm.Interfaces {
		if vm.Interfaces[i].Name == nic.Name {
			vm.Interfaces[i].Down = nic.Down
		}
	}
	return l.updatePod(context.WithoutCancel(ctx), vm)
}

// plug applies new interfaces to the pod and plugs them into the guest.
func (l *launch) plug(ctx context.Context, next model.VM, added []model.VMInterface) (err error) {
	was, addrs := l.Input.VM, maps.Clone(l.addrs)
	var plugged []model.VMDevice
	defer func() {
		if err == nil {
			return
		}
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTime)
		defer cancel()
		for _, d := range plugged {
			err = errors.Join(err, l.vm.Unplug(cleanup, d))
		}
		l.addrs = addrs
		err = errors.Join(err, l.updatePod(cleanup, was))
	}()
	if err := l.attachNetworks(ctx, next); err != nil {
		return err
	}
	in := l.Input
	in.VM = next
	for _, nic := range added {
		if l.addrs[nic.Name], err = nicAddrs(l.Pod, in, nic); err != nil {
			return err
		}
	}
	record, err := l.Host.Start(ctx, l.Pod, in)
	if err != nil {
		return err
	}
	l.record = record
	for _, nic := range added {
		n, _ := l.network(nic.Name)
		if err := l.plugOne(ctx, n); err != nil {
			return err
		}
		plugged = append(plugged, n.Device)
	}
	l.Input.VM = next
	l.startWeftGuest(context.WithoutCancel(ctx))
	l.status.Interfaces = interfaces(l.record, l.addrs)
	return l.writePhase(Running)
}

func (l *launch) plugOne(ctx context.Context, n phase1.Network) error {
	if l.Hypervisor != nil { // the hypervisor opens the link
		return l.vm.Plug(ctx, n.Device, nil, nil)
	}
	taps, err := l.openTaps(n)
	if err != nil {
		return err
	}
	vhost := l.vhost(n.Device)
	defer func() { closeAll(taps); closeAll(vhost) }()
	return l.vm.Plug(ctx, n.Device, taps, vhost)
}

func (l *launch) network(name string) (phase1.Network, bool) {
	for _, n := range l.record.Networks {
		if n.Interface.Name == name {
			return n, true
		}
	}
	return phase1.Network{}, false
}
