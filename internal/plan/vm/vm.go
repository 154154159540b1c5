// SPDX-License-Identifier: Apache-2.0

// Package vm plans how the interfaces of a virtual machine meet the network of its pod. It is pure: from what the
// manifest says and what the kernel answered of the pod's links it says which links, addresses and rules should be in
// the pod, what the hypervisor is told, and what the guest is told on its wires.
//
// # Bindings
//
//	bridge       the pod's link gives name, addresses and MAC to a link that stands in for it, and becomes a port of a
//	             bridge whose other port is the guest's tap: the guest has the pod's address
//	masquerade   a bridge with a tap alone; nft translates between the pod's address and the guest's
//	direct       the guest's tap and the pod's link are one wire: the guest has the pod's address, and no bridge is between
//	managedTap   as bridge; a plugin's sidecar speaks to the guest
//	tap, macvtap the hypervisor takes what a CNI plugin has left in the pod
//	sriov        the hypervisor takes a device of the machine
//
// # Owners
//
// Each network is a fragment of its own, so that one can be taken away (hot-unplug) and the others stay. What all of
// them need of the pod (forwarding) is another one, which goes last.
package vm

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Input is all that the plan may come from.
type Input struct {
	VM model.VM `json:"vm"`
	// Answers holds an answer for every query of Observe.
	Answers state.Answers `json:"-"`
	// Attached are the node's tables of the pod's attachments by the pod's links, as far as they are known: some name a
	// link's hardware address.
	Attached map[string][]state.Table `json:"-"`
	// Ordinal tells that the pod's other links are named net1, net2 …, as before KubeVirt 0.59.
	Ordinal bool `json:"ordinal,omitempty"`
	// StandIn is the kind of the link that keeps a pod link's name: dummy, or bridge where the kernel has no dummy.
	StandIn state.Kind `json:"standIn,omitempty"`
	// SoftChecksums has the kernel compute the checksums of what the pod's bridges send, as KubeVirt did until 1.7.
	SoftChecksums bool `json:"softChecksums,omitempty"`
	// TrustGuest lets guests that have the pod's addresses, or translated ones, say whatever they like on their wires.
	TrustGuest bool `json:"trustGuest,omitempty"`
	// Subnet is the length of the prefix of a subnet in which a guest that is joined directly and has a single address of
	// IPv4 is told to be; 0 tells it the truth.
	Subnet int `json:"subnet,omitempty"`
	// Asker begins what is said of errors where no manifest has fields.
	Asker string `json:"-"`
	// Join is the way in which a tap is joined to the pod's link; unset, the best one that the kernel can.
	Join state.JoinHow `json:"join,omitempty"`
	// Devices are the PCI addresses of the machine's devices that networks were given, by the network's name.
	Devices map[string]string `json:"devices,omitempty"`
	// DNS is what the pod's resolv.conf says.
	DNS model.DNS `json:"dns,omitzero"`
}

// Step is a part of the plan that is applied, and undone, by itself.
type Step struct {
	Fragment state.Fragment `json:"fragment"`
	// Restore is the pre-image of what the fragment changes and did not make.
	Restore state.Fragment `json:"restore"`
}

// Network is the plan of one interface.
type Network struct {
	Interface model.VMInterface `json:"interface"`
	// PodLink is the pod's link of that network.
	PodLink string `json:"podLink"`
	Step
	Device model.VMDevice `json:"device"`
	// Guest is nil where nothing is told: somebody else does, or there is nothing to tell.
	Guest *model.Guest `json:"guest,omitempty"`
}

// Plan is the plan of a machine.
type Plan struct {
	// Pod is what all networks need of the pod.
	Pod      Step      `json:"pod"`
	Networks []Network `json:"networks"`
}

// Observe says what must be known of the pod.
func Observe(in Input) []state.Query {
	var out []state.Query
	for _, nic := range in.VM.Interfaces {
		if nic.Absent || nic.Binding == model.VMSRIOV {
			continue
		}
		n := in.names(nic)
		out = append(out, link(n.pod), routes(n.pod), link(n.tap))
		switch nic.Binding {
		case model.VMBridge, model.VMManagedTap:
			out = append(out, link(n.bridge), link(n.moved), setting(disableIPv6(n.pod)), neighs(state.Pod, n.pod),
				otherEnd(n.pod))
		case model.VMMasquerade:
			out = append(out, link(n.bridge))
		case model.VMDirect:
			out = append(out, gateways(n.pod), otherEnd(n.pod))
		}
	}
	return append(out, setting(arpIgnore), setting(forward4), setting(forward6))
}

func link(name string) state.Query       { return state.Query{Space: state.Pod, Link: name} }
func routes(name string) state.Query     { return state.Query{Space: state.Pod, Routes: name} }
func otherEnd(name string) state.Query   { return state.Query{Space: state.Pod, OtherEnd: name} }
func gateways(name string) state.Query   { return state.Query{Space: state.Pod, Gateways: name} }
func setting(name string) state.Query    { return state.Query{Space: state.Pod, Sysctl: name} }
func disableIPv6(name string) string     { return "net/ipv6/conf/" + name + "/disable_ipv6" }
func owner(vm model.VM, s string) string { return "vm/" + vm.Key() + "/" + s }

func neighs(where state.SpaceName, link string) state.Query {
	return state.Query{Space: where, Neighs: link}
}

// ObserveFurther says what else must be known, now that the answers to Observe are.
func ObserveFurther(in Input) []state.Query {
	var out []state.Query
	for q, a := range in.Answers {
		if q.OtherEnd != "" && a.Found {
			out = append(out, neighs(state.Host, a.Link.Name))
		}
	}
	return out
}

// New decides. Errors are *model.Fault with the path of the manifest's field that they are about.
func New(in Input) (Plan, error) {
	if in.StandIn == "" {
		in.StandIn = state.Dummy
	}
	p := Plan{
		Pod: Step{Fragment: state.Fragment{Owner: owner(in.VM, "")}, Restore: state.Fragment{Owner: owner(in.VM, "")}},
	}
	macs := map[string]string{}
	for _, nic := range in.VM.Interfaces {
		if nic.Absent {
			continue
		}
		n, err := in.network(nic, &p.Pod)
		if err != nil {
			return Plan{}, err
		}
		if mac := n.Device.MAC; mac != "" {
			if other, twice := macs[mac]; twice {
				return Plan{}, in.fault(nic, "macAddress", model.CodeInvalidConf, "choose another one",
					"%s is the address of interface %q already", mac, other)
			}
			macs[mac] = nic.Name
		}
		p.Networks = append(p.Networks, n)
	}
	return p, nil
}

// network plans one interface, and adds to what the pod needs.
func (in Input) network(nic model.VMInterface, pod *Step) (Network, error) {
	p := planner{Input: in, nic: nic, names: in.names(nic)}
	o := owner(in.VM, nic.Name)
	p.out = Network{
		Interface: nic, PodLink: p.names.pod,
		Step: Step{Fragment: state.Fragment{Owner: o}, Restore: state.Fragment{Owner: o}},
		Device: model.VMDevice{
			Name: nic.Name, MAC: nic.MAC, Model: nic.Model, BootOrder: nic.BootOrder, PCIAddress: nic.PCIAddress,
			ACPIIndex: nic.ACPIIndex, Down: nic.Down,
		},
	}
	if nic.Virtio() {
		p.out.Device.Queues = in.VM.Queues
		p.out.Device.Model = "virtio-non-transitional"
		if in.VM.Transitional {
			p.out.Device.Model = "virtio-transitional"
		}
	}
	if nic.Binding == model.VMSRIOV {
		return p.out, p.sriov()
	}
	if err := p.facts(); err != nil {
		return Network{}, err
	}
	var err error
	switch nic.Binding {
	case model.VMMasquerade:
		err = masquerade{&p}.plan(pod)
	case model.VMTap, model.VMMacvtap:
		err = p.taken()
	case model.VMDirect:
		err = direct{&p}.plan()
	default:
		err = bridge{&p}.plan(pod)
	}
	return p.out, err
}

// fault is about a field of an interface.
func (in Input) fault(
	nic model.VMInterface, field string, code model.Code, hint, format string, args ...any,
) *model.Fault {
	path := in.interfacePath(nic)
	if in.Asker != "" {
		path, field = in.Asker, ""
	}
	if field != "" {
		path += "." + field
	}
	return model.Faultf(code, hint, path+": "+format, args...)
}
