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

// PodName returns the name of the pod of a VM.
func PodName(vm string) string { return "virt-launcher-" + vm }

// DomainAnnotation is the annotation with the VM's name of a VM's pod, MigrationAnnotation the one with the migration's
// name of a migration's target pod.
const (
	DomainAnnotation    = "kubevirt.io/domain"
	MigrationAnnotation = "kubevirt.io/migrationJobName"
)

// KubeVirt's labels and annotations of VM pods, which other components select by.
const (
	labelKind                = "kubevirt.io"
	labelName                = "vm.kubevirt.io/name"
	annotationNetworks       = model.NetworksAnnotation
	annotationDefaultNetwork = "v1.multus-cni.io/default-network"
	podKind                  = "virt-launcher"
)

// PodManifest returns the manifest of a VM's pod, with KubeVirt's labels and annotations. Its container only runs
// command, which keeps the pod running.
func PodManifest(l manifest.Launch, command []string) ([]byte, error) {
	return podManifest(l, PodName(l.VM.Name), "", command)
}

// TargetPodManifest returns the manifest of a migration's target pod; job names the migration.
func TargetPodManifest(l manifest.Launch, name, job string, command []string) ([]byte, error) {
	return podManifest(l, name, job, command)
}

func podManifest(l manifest.Launch, name, job string, command []string) ([]byte, error) {
	type object = map[string]any
	labels := map[string]string{}
	maps.Copy(labels, l.Labels)
	labels[labelKind], labels[labelName] = podKind, l.VM.Name
	annotations := map[string]string{}
	maps.Copy(annotations, l.Annotations)
	annotations[DomainAnnotation] = l.VM.Name
	if job != "" {
		annotations[MigrationAnnotation] = job
	}
	if l.Default != "" {
		annotations[annotationDefaultNetwork] = l.Default
	}
	var networks []networkSelection
	for _, n := range l.Networks {
		for _, nic := range l.VM.Interfaces {
			if nic.Name == n.Network {
				networks = append(networks, newNetworkSelection(l.VM, nic, n.Definition))
			}
		}
	}
	if len(networks) > 0 {
		b, err := json.Marshal(networks)
		if err != nil {
			return nil, fmt.Errorf("pod of VM %s: %w", l.VM.Key(), err)
		}
		annotations[annotationNetworks] = string(b)
	}
	meta := object{"name": name, "namespace": l.VM.Namespace, "labels": labels, "annotations": annotations}
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
		return nil, fmt.Errorf("pod of VM %s: %w", l.VM.Key(), err)
	}
	return b, nil
}

// networkSelection is an element of the networks annotation of the Network Plumbing Working Group.
type networkSelection struct {
	Args      map[string]any `json:"cni-args"`
	Interface string         `json:"interface"`
	MAC       string         `json:"mac,omitempty"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
}

func newNetworkSelection(vm model.VM, nic model.VMInterface, definition string) networkSelection {
	namespace, name, both := strings.Cut(definition, "/")
	if !both {
		namespace, name = vm.Namespace, definition
	}
	in := plan.Input{VM: vm}
	return networkSelection{
		Namespace: namespace, Name: name, Interface: in.PodLink(nic),
		Args: map[string]any{"logicNetworkName": nic.Network.Name}, MAC: nic.MAC,
	}
}

// NetworkSelections returns the networks annotation of a VM's pod, and the names of the links.
func NetworkSelections(vm model.VM) (annotation string, links []string, err error) {
	all := []networkSelection{}
	for _, nic := range vm.Interfaces {
		if nic.Network.Definition != "" && !nic.Network.Primary && !nic.Absent {
			all = append(all, newNetworkSelection(vm, nic, nic.Network.Definition))
			links = append(links, all[len(all)-1].Interface)
		}
	}
	b, err := json.Marshal(all)
	return string(b), links, err
}
