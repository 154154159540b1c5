// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"fmt"

	"github.com/weft-net/weft/api/v1alpha1"
	"github.com/weft-net/weft/internal/cluster/store"
)

// addressFact is what is kept of a pool or a block for routes to other nodes' pods, without IPAM's own bookkeeping,
// which changes often and is large.
type addressFact[Spec any] struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Metadata   addressMeta `json:"metadata"`
	Spec       Spec        `json:"spec"`
}

type addressMeta struct {
	Name              string `json:"name"`
	CreationTimestamp string `json:"creationTimestamp,omitempty"`
	DeletionTimestamp string `json:"deletionTimestamp,omitempty"`
	// Annotations are those with a pool's age: the older one of two overlapping pools allocates addresses.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// isAddressKind reports whether objects of the kind are reduced by reduceAddress.
func isAddressKind(kind string) bool {
	return kind == store.AddressPools().Kind || kind == store.AddressBlocks().Kind
}

func reduceAddress(kind string, raw []byte) (store.Object, error) {
	if kind == store.AddressPools().Kind {
		return reduceSpec(raw, func(pool *v1alpha1.AddressPoolSpec) { pool.Reserved, pool.Excluded = nil, nil })
	}
	return reduceSpec(raw, func(block *v1alpha1.AddressBlockSpec) {
		block.Requested, block.Granted, block.HostID = nil, nil, ""
	})
}

func reduceSpec[Spec any](raw []byte, reduce func(*Spec)) (store.Object, error) {
	var f addressFact[Spec]
	if err := json.Unmarshal(raw, &f); err != nil {
		return store.Object{}, fmt.Errorf("%s %s of the API server: %w", f.Kind, f.Metadata.Name, err)
	}
	reduce(&f.Spec)
	for key := range f.Metadata.Annotations {
		if key != store.Since {
			delete(f.Metadata.Annotations, key)
		}
	}
	small, err := json.Marshal(f)
	if err != nil {
		return store.Object{}, err
	}
	return store.NewObject(small)
}
