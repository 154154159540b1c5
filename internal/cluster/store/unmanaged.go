// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// UnmanagedAnnotation is the annotation of a Node with the unmanaged addresses of its pods.
const UnmanagedAnnotation = Group + "/pod-addresses"

// maxUnmanaged bounds the addresses of one node.
const maxUnmanaged = 4096

// FormatUnmanaged returns the annotation's value; empty, which removes it, if there are none.
func FormatUnmanaged(all []model.UnmanagedAddress) (string, error) {
	if len(all) == 0 {
		return "", nil
	}
	b, err := json.Marshal(all[:min(len(all), maxUnmanaged)])
	if err != nil {
		return "", fmt.Errorf("annotation %s: %w", UnmanagedAnnotation, err)
	}
	return string(b), nil
}

// parseUnmanaged parses the annotation. An invalid value is ignored, so that the node is not lost.
func parseUnmanaged(text string) []model.UnmanagedAddress {
	var all []model.UnmanagedAddress
	if text == "" || json.Unmarshal([]byte(text), &all) != nil {
		return nil
	}
	return slices.DeleteFunc(all[:min(len(all), maxUnmanaged)], func(b model.UnmanagedAddress) bool {
		return !b.Addr.IsValid() || b.Addr.Zone() != "" || b.Addr.Is4In6() || b.Pod == ""
	})
}
