// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"

	"github.com/weft-net/weft/api/v1alpha1"
	"github.com/weft-net/weft/internal/model"
)

// NodeEndpoints returns the object as the endpoints of a node's pods. The object's name is the node's.
func (o Object) NodeEndpoints() ([]model.WorkloadEndpoint, error) {
	if all, ok := o.value.([]model.WorkloadEndpoint); ok {
		return all, nil
	}
	var e struct{ Spec v1alpha1.NodeEndpointsSpec }
	if err := o.decode(&e); err != nil {
		return nil, err
	}
	all := make([]model.WorkloadEndpoint, 0, len(e.Spec.Endpoints))
	for i, s := range e.Spec.Endpoints {
		if s.Namespace == "" || s.Pod == "" || s.Interface == "" {
			return nil, o.errorf("delete it; weft makes these objects itself",
				"spec.endpoints[%d] names no pod and interface", i)
		}
		one := model.WorkloadEndpoint{
			Pod: model.PodRef{Namespace: s.Namespace, Name: s.Pod, UID: s.UID}, Node: o.Key.Name, Network: s.Network,
			IfName: s.Interface, Container: s.Container, Labels: s.Labels,
		}
		for j, text := range s.Addresses {
			a, err := o.addr(fmt.Sprintf("spec.endpoints[%d].addresses[%d]", i, j), text)
			if err != nil {
				return nil, err
			}
			one.Addrs = append(one.Addrs, a)
		}
		all = append(all, one)
	}
	return all, nil
}

// NodeEndpointsObject returns o, or a new object, with the endpoints of the node's pods.
func NodeEndpointsObject(o Object, node string, all []model.WorkloadEndpoint) (Object, error) {
	spec := v1alpha1.NodeEndpointsSpec{Endpoints: make([]v1alpha1.Endpoint, 0, len(all))}
	for _, e := range all {
		s := v1alpha1.Endpoint{
			Namespace: e.Pod.Namespace, Pod: e.Pod.Name, UID: e.Pod.UID, Network: e.Network, Interface: e.IfName,
			Container: e.Container, Labels: e.Labels,
		}
		for _, a := range e.Addrs {
			s.Addresses = append(s.Addresses, a.String())
		}
		spec.Endpoints = append(spec.Endpoints, s)
	}
	return o.withSpec(NodeEndpoints().Key("", node), spec, "endpoints")
}

// WithoutRaw returns the object without its JSON if it has a decoded value, to save memory.
func (o Object) WithoutRaw() Object {
	if o.value != nil {
		o.Raw = nil
	}
	return o
}

// UID returns the uid of the object, empty if it has none.
func (o Object) UID() string {
	var head struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	if json.Unmarshal(o.Raw, &head) != nil {
		return ""
	}
	return head.Metadata.UID
}

// Generation returns the number of the object's specification, which the API server counts; 0 if it does not.
func (o Object) Generation() int64 {
	var head struct {
		Metadata struct {
			Generation int64 `json:"generation"`
		} `json:"metadata"`
	}
	if json.Unmarshal(o.Raw, &head) != nil {
		return 0
	}
	return head.Metadata.Generation
}

// OwnedBy adds an ownerReference, so that the API server deletes the object with its owner. An owner without a uid is
// ignored.
func (o Object) OwnedBy(owner Object) (Object, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	if err := owner.decode(&head); err != nil || head.Metadata.UID == "" {
		return o, err
	}
	return o.Edited(func(fields map[string]any) error {
		meta, err := child(fields, "metadata")
		if err != nil {
			return err
		}
		meta["ownerReferences"] = []any{map[string]any{
			"apiVersion": head.APIVersion, "kind": head.Kind, "name": owner.Key.Name, "uid": head.Metadata.UID,
		}}
		return nil
	})
}
