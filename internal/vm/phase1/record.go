// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/state"
)

// State is the progress of a network.
type State = attach.ActState

// The states.
const (
	Pending  = attach.ActPending
	Started  = attach.ActStarted
	Finished = attach.ActFinished
	Leaving  = attach.ActUndoing
)

// GrantedDevice is a device that the hypervisor's user was granted.
type GrantedDevice = attach.GrantedDevice

// Record is what is stored about a VM in a pod: an attach.Record, as the packages for VMs use it.
type Record struct {
	Version int `json:"version"`
	// VM is the key of the VM, PodID identifies its pod.
	VM    string `json:"machine"`
	PodID string `json:"in"`
	// Boot is the boot ID of the node when the record was written.
	Boot string `json:"boot,omitempty"`
	// Netns is the path of the pod's namespace, Namespace its Identity, and Container the pod's sandbox ID if an agent
	// attached it.
	Netns     string `json:"netns,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Container string `json:"container,omitempty"`
	// Owner is the user and group that the hypervisor runs as.
	Owner uint32 `json:"owner,omitempty"`
	// Path is the place of the instance's specification in its manifest.
	Path string `json:"path"`
	// Shared is what all networks share in the pod.
	Shared   plan.Step `json:"pod"`
	Networks []Network `json:"networks"`
	// Vhost is the granted vhost-net device.
	Vhost *GrantedDevice `json:"vhost,omitempty"`

	exists bool
}

// Network is a network of a VM and its state.
type Network struct {
	State State `json:"state"`
	plan.Network
	// Tap is the granted device of a macvtap.
	Tap *GrantedDevice `json:"tap,omitempty"`
}

func (r *Record) find(name string) int {
	return slices.IndexFunc(r.Networks, func(n Network) bool { return n.Interface.Name == name })
}

// sameLinkStates reports whether the networks have the same carrier states as others.
func (r *Record) sameLinkStates(others []Network) bool {
	return slices.EqualFunc(r.Networks, others, func(a, b Network) bool { return a.Device.Down == b.Device.Down })
}

// add adds a plan. A sysctl that an earlier network has set keeps the pre-image that was stored then.
func (r *Record) add(p plan.Plan) {
	r.Shared.Fragment.Owner, r.Shared.Restore.Owner = p.Pod.Fragment.Owner, p.Pod.Restore.Owner
	for _, s := range p.Pod.Fragment.Pod.Sysctls {
		same := func(o state.Sysctl) bool { return o.Name == s.Name }
		if slices.ContainsFunc(r.Shared.Fragment.Pod.Sysctls, same) {
			continue
		}
		r.Shared.Fragment.Pod.Sysctls = append(r.Shared.Fragment.Pod.Sysctls, s)
		if i := slices.IndexFunc(p.Pod.Restore.Pod.Sysctls, same); i >= 0 {
			r.Shared.Restore.Pod.Sysctls = append(r.Shared.Restore.Pod.Sysctls, p.Pod.Restore.Pod.Sysctls[i])
		}
	}
	for _, n := range p.Networks {
		r.Networks = append(r.Networks, Network{State: Pending, Network: n})
	}
}

// RecordOf converts a stored record.
func RecordOf(stored attach.Record) (Record, error) {
	m := stored.VM
	if m == nil {
		return Record{}, fmt.Errorf("record %s: not a record of a VM", stored.Key())
	}
	r := Record{
		Version: stored.Version, VM: m.Key, PodID: m.Pod, Boot: stored.Boot, Netns: stored.Request.Netns,
		Namespace: m.Namespace, Container: m.Container, Owner: m.Owner, Path: m.Path, exists: true,
	}
	for _, act := range stored.Acts {
		if act.Kind != attach.ActVM || act.Fragment == nil || act.Restore == nil {
			return Record{}, fmt.Errorf("record of VM %s in pod %s: act %q is not one of a VM", m.Key, m.Pod, act.Kind)
		}
		step := plan.Step{Fragment: *act.Fragment, Restore: *act.Restore}
		if act.Interface == nil {
			r.Shared, r.Vhost = step, act.Granted
			continue
		}
		n := Network{State: act.State, Tap: act.Granted, Network: plan.Network{
			Interface: act.Interface.VMInterface, PodLink: act.Interface.PodLink, Step: step, Device: act.Interface.Device,
		}}
		if len(act.Guests) > 0 {
			n.Guest = &act.Guests[0]
		}
		r.Networks = append(r.Networks, n)
	}
	return r, nil
}

// Unfinished reports whether a network is neither applied nor removed.
func (r Record) Unfinished() bool {
	return slices.ContainsFunc(r.Networks, func(n Network) bool { return n.State != Finished })
}

// stored converts the record to its stored form. What all networks share in the pod is the first act, so it is undone
// last.
func (r Record) stored() attach.Record {
	key := attach.VMKey(r.VM, r.PodID)
	out := attach.Record{
		Boot: r.Boot, Stage: attach.Done,
		Request: model.Request{Network: key.Network, ContainerID: key.ContainerID, IfName: key.IfName, Netns: r.Netns},
		VM: &attach.VM{
			Key: r.VM, Pod: r.PodID, Container: r.Container, Namespace: r.Namespace, Owner: r.Owner, Path: r.Path,
		},
		Acts: []attach.Act{{
			Kind: attach.ActVM, Fragment: &r.Shared.Fragment, Restore: &r.Shared.Restore, Granted: r.Vhost,
		}},
	}
	for _, n := range r.Networks {
		act := attach.Act{
			Kind: attach.ActVM, State: n.State, Fragment: &n.Fragment, Restore: &n.Restore, Granted: n.Tap,
			Interface: &attach.VMInterface{VMInterface: n.Interface, PodLink: n.PodLink, Device: n.Device},
		}
		if n.Guest != nil {
			act.Guests = []model.GuestConfig{*n.Guest}
		}
		if n.State != Finished {
			out.Stage = attach.Pending
		}
		out.Acts = append(out.Acts, act)
	}
	return out
}

// Read returns the record of a VM in a pod; without a pod, in the only pod that the VM is in.
func (c Config) Read(key, pod string) (r Record, found bool, err error) {
	if pod != "" {
		stored, found, err := c.records().Get(attach.VMKey(key, pod))
		if err != nil || !found || stored.Boot != c.Boot { // a record of another boot is void: its objects are gone
			return Record{}, false, err
		}
		r, err := RecordOf(stored)
		return r, err == nil, err
	}
	all, err := c.List()
	for _, one := range all {
		if one.VM != key {
			continue
		}
		if found {
			return Record{}, false, model.Errorf(model.CodeInvalidEnv, "choose one of them",
				"VM %s is in the pods %s and %s", key, r.PodID, one.PodID)
		}
		r, found = one, true
	}
	return r, found, err
}

// List returns the records of all VMs of this boot; the error joins those of the unreadable ones.
func (c Config) List() ([]Record, error) {
	all, err := c.Stored()
	errs := []error{err}
	var out []Record
	for _, stored := range all {
		if stored.Boot != c.Boot {
			continue
		}
		r, err := RecordOf(stored)
		if errs = append(errs, err); err == nil {
			out = append(out, r)
		}
	}
	return out, errors.Join(errs...)
}

// Stored returns the records of all VMs in their stored form, also of other boots; the error joins those of the
// unreadable ones.
func (c Config) Stored() ([]attach.Record, error) {
	all, err := c.records().List()
	errs := []error{err}
	var out []attach.Record
	for _, stored := range all {
		if _, err := RecordOf(stored); err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, stored)
	}
	return out, errors.Join(errs...)
}

// open reads the record of a VM in this pod, or begins one.
func (c Config) open(s kernel.Spaces, key, pod string) (*call, error) {
	r, found, err := c.Read(key, pod)
	if err != nil {
		return nil, err
	}
	if !found {
		r = Record{VM: key, PodID: pod, Boot: c.Boot}
	}
	return &call{Config: c, spaces: s, record: r}, nil
}

// save stores the record, so that a killed call can be resumed.
func (w *call) save(why string) error {
	if err := w.Step.At(why); err != nil {
		return err
	}
	if err := w.records().Put(w.record.stored()); err != nil {
		return err
	}
	w.record.exists = true
	return nil
}

func (w *call) forget() error {
	if err := w.Step.At("forget"); err != nil {
		return err
	}
	if err := w.records().Delete(attach.VMKey(w.record.VM, w.record.PodID)); err != nil {
		return err
	}
	w.record.exists = false
	return nil
}
