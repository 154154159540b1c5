// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"github.com/weft-net/weft/api/v1alpha1"
	"github.com/weft-net/weft/internal/model"
)

// FlowListeners are where the nodes' agents serve flows over TLS, one object per node.
func FlowListeners() Kind { return Kind{Group, "v1alpha1", "FlowListener", "flowlisteners", false} }

// FlowListener returns the object as the listener of a node's agent. The object's name is the node's.
func (o Object) FlowListener() (v1alpha1.FlowListenerSpec, error) {
	var l struct{ Spec v1alpha1.FlowListenerSpec }
	if err := o.decode(&l); err != nil {
		return l.Spec, err
	}
	if err := checkFlowListener(l.Spec); err != nil {
		return l.Spec, o.errorf("restart the node's agent, which writes it", "spec: %w", err)
	}
	return l.Spec, nil
}

// FlowListenerObject returns o, or a new object, with the listener of a node's agent.
func FlowListenerObject(o Object, node string, l v1alpha1.FlowListenerSpec) (Object, error) {
	return o.withSpec(FlowListeners().Key("", node), l, "address", "key")
}

func checkFlowListener(l v1alpha1.FlowListenerSpec) error {
	if _, _, err := net.SplitHostPort(l.Address); err != nil {
		return fmt.Errorf("address %q: %w", l.Address, err)
	}
	if l.Key == "" {
		return errors.New("it has no key")
	}
	return nil
}

// FlowListenerAnnotation is the annotation of a Node in which agents of earlier versions published their listener.
const FlowListenerAnnotation = Group + "/flow-listener"

// AnnotatedFlowListener returns the listener in a Node's annotation, and false if it has none.
func (o Object) AnnotatedFlowListener() (l v1alpha1.FlowListenerSpec, has bool, err error) {
	var node struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal(o.Raw, &node); err != nil {
		return l, false, fmt.Errorf("%s: %w", o.Key, err)
	}
	text, has := node.Metadata.Annotations[FlowListenerAnnotation]
	if !has {
		return l, false, nil
	}
	err = json.Unmarshal([]byte(text), &l)
	if err == nil {
		err = checkFlowListener(l)
	}
	if err != nil {
		err = model.Errorf(model.CodeInvalidConf, "restart the node's agent, which writes it",
			"%s: annotation %s %q: %w", o.Key, FlowListenerAnnotation, text, err)
	}
	return l, true, err
}
