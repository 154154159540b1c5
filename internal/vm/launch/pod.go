// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/weft-net/weft/internal/model"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/vm/manifest"
)

// PodName is the name of the pod around a machine.
func PodName(machine string) string { return "virt-launcher-" + machine }

// DomainNote is the annotation of the pods around machines that names the machine, TargetNote that of those that await
// a machine which migrates; its value is the migration.
const (
	DomainNote = "kubevirt.io/domain"
	TargetNote = "kubevirt.io/migrationJobName"
)

// What KubeVirt writes on the pods around machines, and others look for.
const (
	labelKind      = "kubevirt.io"
	labelName      = "vm.kubevirt.io/name"
	noteNetworks   = "k8s.v1.cni.cncf.io/networks"
	noteDefaultNet = "v1.multus-cni.io/default-network"
	podKind        = "virt-launcher"
)

// Pod is the manifest of the pod around a machine, with the labels and annotations that KubeVirt gives it. Its
// container does nothing but be there: command is what it runs.
func Pod(l manifest.Launch, command []string) ([]byte, error) {
	return pod(l, PodName(l.VM.Name), "", command)
}

// Target is the manifest of a pod that awaits a machine which migrates; job names the migration.
func Target(l manifest.Launch, name, job string, command []string) ([]byte, error) {
	return pod(l, name, job, command)
}

func pod(l manifest.Launch, name, job string, command []string) ([]byte, error) {
	type object = map[string]any
	labels := map[string]string{}
	maps.Copy(labels, l.Labels)
	labels[labelKind], labels[labelName] = podKind, l.VM.Name
	notes := map[string]string{}
	maps.Copy(notes, l.Annotations)
	notes[DomainNote] = l.VM.Name
	if job != "" {
		notes[TargetNote] = job
	}
	if l.Default != "" {
		notes[noteDefaultNet] = l.Default
	}
	var networks []selection
	for _, n := range l.Networks {
		for _, nic := range l.VM.Interfaces {
			if nic.Name == n.Network {
				networks = append(networks, selectionOf(l.VM, nic, n.Definition))
			}
		}
	}
	if len(networks) > 0 {
		b, err := json.Marshal(networks)
		if err != nil {
			return nil, fmt.Errorf("pod of machine %s: %w", l.VM.Key(), err)
		}
		notes[noteNetworks] = string(b)
	}
	meta := object{"name": name, "namespace": l.VM.Namespace, "labels": labels, "annotations": notes}
	if l.VM.UID != "" {
		meta["ownerReferences"] = []object{{
			"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": l.VM.Name, "uid": l.VM.UID,
			"controller": true,
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

// selection is a network that a pod asks for, in the words of the Network Plumbing Working Group.
type selection struct {
	Args      map[string]any `json:"cni-args"`
	Interface string         `json:"interface"`
	MAC       string         `json:"mac,omitempty"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
}

func selectionOf(vm model.VM, nic model.VMInterface, definition string) selection {
	namespace, name, both := strings.Cut(definition, "/")
	if !both {
		namespace, name = vm.Namespace, definition
	}
	in := plan.Input{VM: vm}
	return selection{
		Namespace: namespace, Name: name, Interface: in.PodLink(nic),
		Args: map[string]any{"logicNetworkName": nic.Network.Name}, MAC: nic.MAC,
	}
}

// Selections are the networks that the pod around a machine asks for, as its annotation says it, and the links that it
// has of them.
func Selections(vm model.VM) (note string, links []string, err error) {
	all := []selection{}
	for _, nic := range vm.Interfaces {
		if nic.Network.Definition != "" && !nic.Network.Primary && !nic.Absent {
			all = append(all, selectionOf(vm, nic, nic.Network.Definition))
			links = append(links, all[len(all)-1].Interface)
		}
	}
	b, err := json.Marshal(all)
	return string(b), links, err
}
