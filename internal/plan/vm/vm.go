// SPDX-License-Identifier: Apache-2.0

// Package vm plans how the interfaces of a virtual machine are joined to the network of its pod. It is pure: from the
// manifest and the kernel's answers about the pod's links it computes which links, addresses and rules should be in the
// pod, the devices of the hypervisor, and the guest's DHCP and RA configuration.
//
// # Bindings
//
//	bridge       the pod's link passes name, addresses, MAC to a link that stands in for it, and becomes a port of a
//	             bridge whose other port is the guest's tap: the guest has the pod's address
//	masquerade   a bridge with a tap only; nft translates between the pod's address and the guest's
//	direct       the guest's tap and the pod's link are joined: the guest has the pod's address, without a bridge
//	managedTap   as bridge; a binding plugin's sidecar serves DHCP
//	tap, macvtap the hypervisor opens what a CNI plugin has created in the pod
//	sriov        the hypervisor uses a device of the node
//
// # Owners
//
// Each network is a fragment of its own, so that one can be unplugged and the others stay. What all of them need of the
// pod (forwarding) is another one, which is removed last.
package vm

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Input is everything that the plan depends on.
type Input struct {
	VM model.VM `json:"vm"`
	// Answers has an answer for every query of Observe.
	Answers state.Answers `json:"-"`
	// Attached are the node's tables of the pod's attachments, by the pod's links, as far as they are known: some contain
	// a link's MAC address.
	Attached map[string][]state.Table `json:"-"`
	// OrdinalNames: the pod's other links are named net1, net2 …, as before KubeVirt 0.59.
	OrdinalNames bool `json:"ordinal,omitempty"`
	// StandIn is the kind of the placeholder link that keeps a pod link's name: dummy, or bridge if the kernel has no
	// dummy.
	StandIn state.Kind `json:"standIn,omitempty"`
	// SoftChecksums: the kernel computes the checksums of what the pod's bridges send, as with KubeVirt until 1.7.
	SoftChecksums bool `json:"softChecksums,omitempty"`
	// TrustGuest disables the source guard of guests.
	TrustGuest bool `json:"trustGuest,omitempty"`
	// SubnetBits is the prefix length in the DHCP lease of a guest with the direct binding and a single IPv4 address; 0 is
	// the real one.
	SubnetBits int `json:"subnet,omitempty"`
	// ErrorPrefix begins error messages if there is no manifest with fields.
	ErrorPrefix string `json:"-"`
	// Join is how a tap is joined to the pod's link; unset is the best method that the kernel supports.
	Join state.JoinMethod `json:"join,omitempty"`
	// Devices are the PCI addresses of the devices that are assigned to networks, by the network's name.
	Devices map[string]string `json:"devices,omitempty"`
	// DNS is the content of the pod's resolv.conf.
	DNS model.DNS `json:"dns,omitzero"`
}

// Step is a part of the plan that is applied and undone separately.
type Step struct {
	Fragment state.Fragment `json:"fragment"`
	// Restore is the previous state of what the fragment changes but did not create.
	Restore state.Fragment `json:"restore"`
}

// Network is the plan of one interface.
type Network struct {
	Interface model.VMInterface `json:"interface"`
	// PodLink is the pod's link of that network.
	PodLink string `json:"podLink"`
	Step
	Device model.VMDevice `json:"device"`
	// Guest is nil if weft serves no DHCP and RA on the interface.
	Guest *model.GuestConfig `json:"guest,omitempty"`
}

// Plan is the plan of a VM.
type Plan struct {
	// Pod is what all networks need of the pod.
	Pod      Step      `json:"pod"`
	Networks []Network `json:"networks"`
}

// Observe returns the kernel queries whose answers New needs.
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
			out = append(out, link(n.bridge), link(n.renamed), setting(disableIPv6(n.pod)), neighs(state.Pod, n.pod),
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

// ObserveFurther returns further queries, which depend on the answers to Observe.
func ObserveFurther(in Input) []state.Query {
	var out []state.Query
	for q, a := range in.Answers {
		if q.OtherEnd != "" && a.Found {
			out = append(out, neighs(state.Host, a.Link.Name))
		}
	}
	return out
}

// New returns the plan. Errors are *model.Error with the path of the manifest's field.
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
	if err := p.readPodLink(); err != nil {
		return Network{}, err
	}
	var err error
	switch nic.Binding {
	case model.VMMasquerade:
		err = masquerade{&p}.plan(pod)
	case model.VMTap, model.VMMacvtap:
		err = p.useExistingTap()
	case model.VMDirect:
		err = direct{&p}.plan()
	default:
		err = bridge{&p}.plan(pod)
	}
	return p.out, err
}

// fault returns an error about a field of an interface.
func (in Input) fault(
	nic model.VMInterface, field string, code model.Code, hint, format string, args ...any,
) *model.Error {
	path := in.interfacePath(nic)
	if in.ErrorPrefix != "" {
		path, field = in.ErrorPrefix, ""
	}
	if field != "" {
		path += "." + field
	}
	return model.Errorf(code, hint, path+": "+format, args...)
}
