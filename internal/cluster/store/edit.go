// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
)

// PodStatus is the part of a pod's status that weft writes.
type PodStatus struct {
	Phase  string       // Pending, Running, Succeeded, Failed; empty keeps it
	IPs    []netip.Addr // nil keeps them, empty removes them
	HostIP netip.Addr   // invalid keeps it
	// Annotations are merged into those that are there; an empty value removes the annotation.
	Annotations map[string]string
}

// Edit changes an object's fields in place.
type Edit func(fields map[string]any) error

// Edited returns o after the edit, with the version of the new content. Other fields are kept. The name must not
// change.
func (o Object) Edited(edit Edit) (Object, error) {
	fields, err := decodeFields(o.Raw)
	if err != nil {
		return o, fmt.Errorf("%s: %w", o.Key, err)
	}
	if err := edit(fields); err != nil {
		return o, fmt.Errorf("%s: %w", o.Key, err)
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		return o, fmt.Errorf("%s: %w", o.Key, err)
	}
	n, err := NewObject(raw)
	if err == nil && n.Key != o.Key {
		err = fmt.Errorf("%s: edited into %s", o.Key, n.Key)
	}
	return n, err
}

// Edit is the edit that writes the status into a pod.
func (s PodStatus) Edit(fields map[string]any) error {
	if len(s.Annotations) > 0 {
		if err := annotate(fields, s.Annotations); err != nil {
			return err
		}
	}
	status, err := child(fields, "status")
	if err != nil {
		return err
	}
	if s.Phase != "" {
		status["phase"] = s.Phase
	}
	if s.HostIP.IsValid() {
		status["hostIP"] = s.HostIP.String()
	}
	if s.IPs != nil {
		delete(status, "podIP")
		delete(status, "podIPs")
		list := []any{}
		for _, ip := range s.IPs {
			list = append(list, map[string]any{"ip": ip.String()})
		}
		if len(list) > 0 {
			status["podIP"], status["podIPs"] = s.IPs[0].String(), list
		}
	}
	return nil
}

// Annotate is the edit that merges annotations into an object; an empty value removes the annotation.
func Annotate(annotations map[string]string) Edit {
	return func(fields map[string]any) error { return annotate(fields, annotations) }
}

// AssignNode is the edit that binds a pod to a node.
func AssignNode(node string) Edit {
	return func(fields map[string]any) error {
		spec, err := child(fields, "spec")
		if err != nil {
			return err
		}
		spec["nodeName"] = node
		return nil
	}
}

// NodeObject returns a Node manifest of the model's node.
func NodeObject(n model.Node) (Object, error) {
	meta := map[string]any{"name": n.Name}
	if len(n.Labels) > 0 {
		meta["labels"] = n.Labels
	}
	if len(n.Annotations) > 0 {
		meta["annotations"] = n.Annotations
	}
	fields := map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": meta}
	if len(n.PodCIDRs) > 0 {
		fields["spec"] = map[string]any{"podCIDR": n.PodCIDRs[0], "podCIDRs": n.PodCIDRs}
	}
	var addrs []any
	for _, ip := range n.Addrs {
		addrs = append(addrs, map[string]any{"type": "InternalIP", "address": ip})
	}
	addrs = append(addrs, map[string]any{"type": "Hostname", "address": n.Name})
	fields["status"] = map[string]any{"addresses": addrs}
	raw, err := json.Marshal(fields)
	if err != nil {
		return Object{}, fmt.Errorf("node %s: %w", n.Name, err)
	}
	return NewObject(raw)
}

func annotate(fields map[string]any, annotations map[string]string) error {
	meta, err := child(fields, "metadata")
	if err != nil {
		return err
	}
	have, err := child(meta, "annotations")
	if err != nil {
		return err
	}
	for k, v := range annotations {
		if v == "" {
			delete(have, k)
		} else {
			have[k] = v
		}
	}
	if len(have) == 0 {
		delete(meta, "annotations")
	}
	return nil
}

// child returns the object at key; it is created if missing.
func child(fields map[string]any, key string) (map[string]any, error) {
	switch v := fields[key].(type) {
	case map[string]any:
		return v, nil
	case nil:
		m := map[string]any{}
		fields[key] = m
		return m, nil
	default:
		return nil, model.Errorf(model.CodeInvalidConf, "write a mapping", "field %s is %T", key, v)
	}
}
