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

// State is how far a network is.
type State = attach.ActState

// The states.
const (
	Pending  = attach.ActPending
	Started  = attach.ActStarted
	Finished = attach.ActFinished
	Leaving  = attach.ActLeaving
)

// Given is a device that the machine's user was given.
type Given = attach.Given

// Record is what is remembered of a machine in a pod: attach's record, whose acts they are, as those read it who deal
// with machines.
type Record struct {
	Version int `json:"version"`
	// Machine is the machine's key, In the pod that it is in.
	Machine string `json:"machine"`
	In      string `json:"in"`
	// Boot is the boot of the node in which it was written.
	Boot string `json:"boot,omitempty"`
	// Netns is where the pod's namespace could be opened, Namespace that one's name among all, and Container the pod's
	// sandbox where an agent attached it.
	Netns     string `json:"netns,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Container string `json:"container,omitempty"`
	// Owner is the user and group that the hypervisor runs as.
	Owner uint32 `json:"owner,omitempty"`
	// Path is where its manifest has the instance's specification.
	Path string `json:"path"`
	// Pod is what all networks need of the pod.
	Pod      plan.Step `json:"pod"`
	Networks []Network `json:"networks"`
	// Vhost is the device that the machine's user was given.
	Vhost *Given `json:"vhost,omitempty"`

	exists bool
}

// Network is a network with its state.
type Network struct {
	State State `json:"state"`
	plan.Network
	// Tap is the macvtap's device that the machine's user was given.
	Tap *Given `json:"tap,omitempty"`
}

func (r *Record) find(name string) int {
	return slices.IndexFunc(r.Networks, func(n Network) bool { return n.Interface.Name == name })
}

// linked tells whether the carriers of its networks are those of others.
func (r *Record) linked(others []Network) bool {
	return slices.EqualFunc(r.Networks, others, func(a, b Network) bool { return a.Device.Down == b.Device.Down })
}

// add adds a plan. What of the pod a network before has set keeps the pre-image that was taken then.
func (r *Record) add(p plan.Plan) {
	r.Pod.Fragment.Owner, r.Pod.Restore.Owner = p.Pod.Fragment.Owner, p.Pod.Restore.Owner
	for _, s := range p.Pod.Fragment.Pod.Sysctls {
		same := func(o state.Sysctl) bool { return o.Name == s.Name }
		if slices.ContainsFunc(r.Pod.Fragment.Pod.Sysctls, same) {
			continue
		}
		r.Pod.Fragment.Pod.Sysctls = append(r.Pod.Fragment.Pod.Sysctls, s)
		if i := slices.IndexFunc(p.Pod.Restore.Pod.Sysctls, same); i >= 0 {
			r.Pod.Restore.Pod.Sysctls = append(r.Pod.Restore.Pod.Sysctls, p.Pod.Restore.Pod.Sysctls[i])
		}
	}
	for _, n := range p.Networks {
		r.Networks = append(r.Networks, Network{State: Pending, Network: n})
	}
}

// RecordOf reads a machine's record.
func RecordOf(stored attach.Record) (Record, error) {
	m := stored.Machine
	if m == nil {
		return Record{}, fmt.Errorf("record %s: of no machine", stored.Key())
	}
	r := Record{
		Version: stored.Version, Machine: m.Key, In: m.Pod, Boot: stored.Boot, Netns: stored.Request.Netns,
		Namespace: m.Namespace, Container: m.Container, Owner: m.Owner, Path: m.Path, exists: true,
	}
	for _, act := range stored.Acts {
		if act.Kind != attach.ActMachine || act.Fragment == nil || act.Restore == nil {
			return Record{}, fmt.Errorf("record of machine %s in pod %s: act %q is none of a machine's", m.Key, m.Pod, act.Kind)
		}
		step := plan.Step{Fragment: *act.Fragment, Restore: *act.Restore}
		if act.Interface == nil {
			r.Pod, r.Vhost = step, act.Given
			continue
		}
		n := Network{State: act.State, Tap: act.Given, Network: plan.Network{
			Interface: act.Interface.VMInterface, PodLink: act.Interface.PodLink, Step: step, Device: act.Interface.Device,
		}}
		if len(act.Guests) > 0 {
			n.Guest = &act.Guests[0]
		}
		r.Networks = append(r.Networks, n)
	}
	return r, nil
}

// Unfinished reports whether some of its networks are neither there nor gone.
func (r Record) Unfinished() bool {
	return slices.ContainsFunc(r.Networks, func(n Network) bool { return n.State != Finished })
}

// stored is the record as it is kept. What all networks need of the pod comes first, and so is undone last.
func (r Record) stored() attach.Record {
	key := attach.MachineKey(r.Machine, r.In)
	out := attach.Record{
		Boot: r.Boot, Stage: attach.Done,
		Request: model.Request{Network: key.Network, ContainerID: key.ContainerID, IfName: key.IfName, Netns: r.Netns},
		Machine: &attach.Machine{
			Key: r.Machine, Pod: r.In, Container: r.Container, Namespace: r.Namespace, Owner: r.Owner, Path: r.Path,
		},
		Acts: []attach.Act{{
			Kind: attach.ActMachine, Fragment: &r.Pod.Fragment, Restore: &r.Pod.Restore, Given: r.Vhost,
		}},
	}
	for _, n := range r.Networks {
		act := attach.Act{
			Kind: attach.ActMachine, State: n.State, Fragment: &n.Fragment, Restore: &n.Restore, Given: n.Tap,
			Interface: &attach.MachineInterface{VMInterface: n.Interface, PodLink: n.PodLink, Device: n.Device},
		}
		if n.Guest != nil {
			act.Guests = []model.Guest{*n.Guest}
		}
		if n.State != Finished {
			out.Stage = attach.Pending
		}
		out.Acts = append(out.Acts, act)
	}
	return out
}

// Read tells what is remembered of a machine in a pod; without a pod, in the only one that it is in.
func (c Config) Read(key, pod string) (r Record, found bool, err error) {
	if pod != "" {
		stored, found, err := c.records().Get(attach.MachineKey(key, pod))
		if err != nil || !found || stored.Boot != c.Boot { // one of another boot is void: what it tells of went with that
			return Record{}, false, err
		}
		r, err := RecordOf(stored)
		return r, err == nil, err
	}
	all, err := c.List()
	for _, one := range all {
		if one.Machine != key {
			continue
		}
		if found {
			return Record{}, false, model.Faultf(model.CodeInvalidEnv, "say which of them is meant",
				"machine %s is in the pods %s and %s", key, r.In, one.In)
		}
		r, found = one, true
	}
	return r, found, err
}

// List tells what is remembered of all machines of this boot; the error joins what is wrong with others.
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

// Stored are the records of all machines, also of other boots, as they are kept; the error joins what is wrong with
// others.
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

// open begins with what is remembered of a machine in this pod.
func (c Config) open(s kernel.Spaces, key, pod string) (*work, error) {
	r, found, err := c.Read(key, pod)
	if err != nil {
		return nil, err
	}
	if !found {
		r = Record{Machine: key, In: pod, Boot: c.Boot}
	}
	return &work{Config: c, spaces: s, record: r}, nil
}

// save writes the record, which is then whole whenever this process is killed.
func (w *work) save(why string) error {
	if err := w.Step.At(why); err != nil {
		return err
	}
	if err := w.records().Put(w.record.stored()); err != nil {
		return err
	}
	w.record.exists = true
	return nil
}

func (w *work) forget() error {
	if err := w.Step.At("forget"); err != nil {
		return err
	}
	if err := w.records().Delete(attach.MachineKey(w.record.Machine, w.record.In)); err != nil {
		return err
	}
	w.record.exists = false
	return nil
}
