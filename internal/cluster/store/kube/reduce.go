// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/flannel"
)

// fact is what is kept of a node, pod, namespace or network. Other fields are dropped on arrival: images, conditions,
// containers, managed fields. So is the resource version, so that an object whose facts did not change is unchanged: a
// kubelet writes its node's heartbeat every few minutes.
type fact struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Metadata   factMeta   `json:"metadata"`
	Spec       factSpec   `json:"spec,omitzero"`
	Status     factStatus `json:"status,omitzero"`
}

type factMeta struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	UID         string            `json:"uid,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type factSpec struct {
	NodeName    string `json:"nodeName,omitempty"`
	HostNetwork bool   `json:"hostNetwork,omitempty"`
	// Account is the name of the pod's service account, for Calico's policies.
	Account  string   `json:"serviceAccountName,omitempty"`
	PodCIDR  string   `json:"podCIDR,omitempty"`
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	Config   string   `json:"config,omitempty"`
	// Containers and InitContainers are those with named ports, for policies.
	Containers     []factContainer `json:"containers,omitempty"`
	InitContainers []factContainer `json:"initContainers,omitempty"`
}

type factContainer struct {
	RestartPolicy string     `json:"restartPolicy,omitempty"`
	Ports         []factPort `json:"ports,omitempty"`
}

type factPort struct {
	Name          string `json:"name"`
	Protocol      string `json:"protocol,omitempty"`
	ContainerPort int    `json:"containerPort"`
}

// withNames returns the containers with named ports.
func withNames(in []factContainer) []factContainer {
	var out []factContainer
	for _, c := range in {
		if c.Ports = slices.DeleteFunc(c.Ports, func(p factPort) bool { return p.Name == "" }); len(c.Ports) > 0 {
			out = append(out, c)
		}
	}
	return out
}

type factStatus struct {
	Phase     string        `json:"phase,omitempty"`
	PodIP     string        `json:"podIP,omitempty"`
	PodIPs    []factIP      `json:"podIPs,omitempty"`
	Addresses []factAddress `json:"addresses,omitempty"`
	// Conditions have a node's Ready only.
	Conditions []factCondition `json:"conditions,omitempty"`
}

type factCondition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

type factIP struct {
	IP string `json:"ip"`
}

type factAddress struct {
	Type    string `json:"type"`
	Address string `json:"address"`
}

// reduceFact keeps the facts.
func reduceFact(raw []byte) (store.Object, error) { return (&Store{}).reduceFact(raw) }

// reduceFact keeps the facts.
func (s *Store) reduceFact(raw []byte) (store.Object, error) {
	var f fact
	if err := json.Unmarshal(raw, &f); err != nil {
		return store.Object{}, fmt.Errorf("%s %s of the API server: %w", f.Kind, f.Metadata.Name, err)
	}
	if isAddressKind(f.Kind) {
		return reduceAddress(f.Kind, raw)
	}
	kept := map[string]string{}
	for name, value := range f.Metadata.Annotations {
		rest, theirs := strings.CutPrefix(name, s.cfg.Flannel)
		switch {
		case f.Kind == "Node" && theirs && s.cfg.Flannel != "":
			kept[flannel.Prefix+"/"+rest] = value
		case f.Kind == "Node" && store.IsBGPAnnotation(name):
			kept[name] = value
		case f.Kind == "Node" && !strings.HasPrefix(name, store.Group+"/"), strings.HasPrefix(name, "kubectl.kubernetes.io/"):
		default:
			kept[name] = value
		}
	}
	f.Metadata.Annotations = kept
	f.Status.Conditions = slices.DeleteFunc(f.Status.Conditions, func(c factCondition) bool { return f.Kind != "Node" || c.Type != "Ready" })
	f.Spec.Containers, f.Spec.InitContainers = withNames(f.Spec.Containers), withNames(f.Spec.InitContainers)
	small, err := json.Marshal(f)
	if err != nil {
		return store.Object{}, err
	}
	return store.NewObject(small)
}
