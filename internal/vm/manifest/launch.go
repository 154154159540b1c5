// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"maps"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/weft-net/weft/internal/model"
)

// Launch has what is needed to run a VM, in addition to its network.
type Launch struct {
	VM model.VM
	// Labels and Annotations are those of the manifest for the pod.
	Labels, Annotations map[string]string
	// Node is the node that the manifest selects; "" is any.
	Node string
	// CPUs is the number of the guest's CPUs, Memory its memory in MiB; 0 if the manifest does not set it.
	CPUs, Memory int // glossary: RAM
	// Networks are the definitions of the secondary networks, Default the one that replaces the pod network.
	Networks []LaunchNetwork
	Default  string
	// Disks are the guest's, in the manifest's order.
	Disks []Disk
	// Grace is the time in seconds for the guest to stop after ACPI shutdown.
	Grace int64
}

// LaunchNetwork is a secondary network of the pod.
type LaunchNetwork struct {
	// Network is its name in the VM, Definition the name of its NetworkAttachmentDefinition.
	Network, Definition string
}

// ReadLaunch is Read for callers that run the VM.
func ReadLaunch(data []byte, o Options) (Launch, error) {
	d, err := one(data, o)
	if err != nil {
		return Launch{}, err
	}
	return d.launch(o)
}

// ReadAll reads all VMs of a file; none is no error.
func ReadAll(data []byte, o Options) ([]Launch, error) {
	found, err := all(data, o.Name)
	if err != nil {
		return nil, err
	}
	var out []Launch
	for _, d := range found {
		l, err := d.launch(o)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

// hostnameLabel is the node label by which manifests select a node.
const hostnameLabel = "kubernetes.io/hostname"

func (d document) launch(o Options) (Launch, error) {
	vm, err := d.vm(o)
	if err != nil {
		return Launch{}, err
	}
	l := Launch{
		VM: vm, Labels: maps.Clone(d.labels), Annotations: maps.Clone(d.annotations),
		Node: d.instance.NodeSelector[hostnameLabel],
		CPUs: d.cpus(), Memory: d.ramMiB(), Grace: 30,
	}
	if g := d.instance.TerminationGracePeriodSeconds; g != nil {
		const most = int64(math.MaxInt64 / time.Second)
		if *g < 0 || *g > most {
			return Launch{}, model.Errorf(model.CodeInvalidConf, "the default is 30", "%s",
				at(d.path.Child("terminationGracePeriodSeconds"), "%d is not between 0 and %d", *g, most))
		}
		l.Grace = *g
	}
	if l.Disks, err = d.disks(); err != nil {
		return Launch{}, err
	}
	if d.status.NodeName != "" {
		l.Node = d.status.NodeName
	}
	for _, n := range d.instance.Networks {
		switch {
		case n.Multus == nil:
		case n.Multus.Default:
			l.Default = n.Multus.NetworkName
		default:
			l.Networks = append(l.Networks, LaunchNetwork{n.Name, n.Multus.NetworkName})
		}
	}
	return l, nil
}

// cpus returns the number of the guest's CPUs.
func (d document) cpus() int {
	const most = 255
	cpu := d.instance.Domain.CPU
	if cpu == nil {
		return 0
	}
	n := 0
	if cpu.Cores+cpu.Sockets+cpu.Threads > 0 {
		n = 1
		for _, part := range []uint32{cpu.Cores, cpu.Sockets, cpu.Threads} {
			n = min(n*max(1, int(min(part, most))), most)
		}
	}
	return n
}

// ramMiB returns the guest's memory, or the pod's memory request.
func (d document) ramMiB() int {
	dom := d.instance.Domain
	if m := dom.Memory; m != nil && m.Guest != nil {
		return mebibytes(*m.Guest)
	}
	for _, list := range []map[string]resource.Quantity{
		quantities(dom.Resources.Requests), quantities(dom.Resources.Limits),
	} {
		if q, ok := list["memory"]; ok {
			return mebibytes(q)
		}
	}
	return 0
}

func quantities[K ~string](list map[K]resource.Quantity) map[string]resource.Quantity {
	out := map[string]resource.Quantity{}
	for k, v := range list {
		out[string(k)] = v
	}
	return out
}

func mebibytes(q resource.Quantity) int { return int(min(q.Value()>>20, math.MaxInt32)) }
