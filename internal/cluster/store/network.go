// SPDX-License-Identifier: Apache-2.0

package store

import "github.com/weft-net/weft/internal/model"

// NetworkAttachment returns the object as a network. Its configuration is not parsed here: an invalid one affects only
// its users.
func (o Object) NetworkAttachment() (model.NetworkAttachment, error) {
	if n, ok := o.value.(model.NetworkAttachment); ok {
		return n, nil
	}
	var n struct {
		Metadata metadata `json:"metadata"`
		Spec     struct {
			Config string `json:"config"`
		} `json:"spec"`
	}
	if err := o.decode(&n); err != nil {
		return model.NetworkAttachment{}, err
	}
	return model.NetworkAttachment{
		Namespace: o.Key.Namespace, Name: o.Key.Name, Annotations: n.Metadata.Annotations, Config: n.Spec.Config,
	}, nil
}
