// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"
	"net"

	"github.com/weft-net/weft/internal/model"
)

// FlowListenerAnnotation is the annotation of a Node with the FlowListener of its agent.
const FlowListenerAnnotation = Group + "/flow-listener"

// FlowListener is where an agent serves its flows over TLS.
type FlowListener struct {
	// Address is HOST:PORT; without a host it is an address of the node.
	Address string `json:"address"`
	// Key is the base64 of the SHA-256 of the public key (SubjectPublicKeyInfo), with which the agent identifies itself.
	Key string `json:"key"`
}

// Value returns the annotation's value.
func (l FlowListener) Value() (string, error) {
	b, err := json.Marshal(l)
	if err != nil {
		return "", fmt.Errorf("annotation %s: %w", FlowListenerAnnotation, err)
	}
	return string(b), nil
}

// FlowListener returns that of a Node, and false if it has none.
func (o Object) FlowListener() (FlowListener, bool, error) {
	var node struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal(o.Raw, &node); err != nil {
		return FlowListener{}, false, fmt.Errorf("%s: %w", o.Key, err)
	}
	text, ok := node.Metadata.Annotations[FlowListenerAnnotation]
	if !ok {
		return FlowListener{}, false, nil
	}
	var l FlowListener
	err := json.Unmarshal([]byte(text), &l)
	if err == nil {
		_, _, err = net.SplitHostPort(l.Address)
	}
	if err != nil || l.Key == "" {
		return l, false, model.Errorf(model.CodeInvalidConf, "restart the node's agent, which writes it",
			"%s: annotation %s %q is not valid", o.Key, FlowListenerAnnotation, text)
	}
	return l, true, nil
}
