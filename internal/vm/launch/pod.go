// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/vm/manifest"
)

// PodName is the name of the pod around a machine.
func PodName(machine string) string { return "virt-launcher-" + machine }

// DomainNote is the annotation of the pods around machines that names the machine.
const DomainNote = "kubevirt.io/domain"

// What KubeVirt writes on the pods around machines, and others look for.
const (
	labelKind      = "kubevirt.io"
	labelName      = "vm.kubevirt.io/name"
	noteNetworks   = "k8s.v1.cni.cncf.io/networks"
	noteDefaultNet = "v1.multus-cni.io/default-network"
	podKind        = "virt-launcher"
)

// Pod is the manifest of the pod around a machine, with the labels and annotations that KubeVirt gives it. Its container does
// nothing but be there: command is what it runs.
func Pod(l manifest.Launch, command []string) ([]byte, error) {
	type object = map[string]any
	labels := map[string]string{}
	maps.Copy(labels, l.Labels)
	labels[labelKind], labels[labelName] = podKind, l.VM.Name
	notes := map[string]string{}
	maps.Copy(notes, l.Annotations)
	notes[DomainNote] = l.VM.Name
	if l.Default != "" {
		notes[noteDefaultNet] = l.Default
	}
	var networks []object
	in := plan.Input{VM: l.VM}
	for _, n := range l.Networks {
		namespace, name, both := strings.Cut(n.Definition, "/")
		if !both {
			namespace, name = l.VM.Namespace, n.Definition
		}
		o := object{"namespace": namespace, "name": name}
		for _, nic := range l.VM.Interfaces {
			if nic.Name != n.Network {
				continue
			}
			o["interface"] = in.PodLink(nic)
			o["cni-args"] = object{"logicNetworkName": n.Network}
			if nic.MAC != "" {
				o["mac"] = nic.MAC
			}
		}
		networks = append(networks, o)
	}
	if len(networks) > 0 {
		b, err := json.Marshal(networks)
		if err != nil {
			return nil, fmt.Errorf("pod of machine %s: %w", l.VM.Key(), err)
		}
		notes[noteNetworks] = string(b)
	}
	meta := object{"name": PodName(l.VM.Name), "namespace": l.VM.Namespace, "labels": labels, "annotations": notes}
	if l.VM.UID != "" {
		meta["ownerReferences"] = []object{{
			"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": l.VM.Name, "uid": l.VM.UID, "controller": true,
		}}
	}
	spec := object{
		"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "hostname": l.VM.Hostname,
		"containers": []object{{"name": "compute", "image": "none", "command": command}},
	}
	if l.Node != "" {
		spec["nodeName"] = l.Node
	}
	b, err := json.Marshal(object{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
	if err != nil {
		return nil, fmt.Errorf("pod of machine %s: %w", l.VM.Key(), err)
	}
	return b, nil
}
