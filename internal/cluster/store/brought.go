// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// BroughtAnnotation is where a node's agent tells which addresses its pods have brought along.
const BroughtAnnotation = Group + "/pod-addresses"

// mostBrought bounds what is read of one node.
const mostBrought = 4096

// WriteBrought is the annotation's value; empty, which takes it away, where there is nothing to tell.
func WriteBrought(all []model.Brought) (string, error) {
	if len(all) == 0 {
		return "", nil
	}
	b, err := json.Marshal(all[:min(len(all), mostBrought)])
	if err != nil {
		return "", fmt.Errorf("annotation %s: %w", BroughtAnnotation, err)
	}
	return string(b), nil
}

// readBrought reads it. Nonsense is as nothing: the node must not be lost for it.
func readBrought(text string) []model.Brought {
	var all []model.Brought
	if text == "" || json.Unmarshal([]byte(text), &all) != nil {
		return nil
	}
	return slices.DeleteFunc(all[:min(len(all), mostBrought)], func(b model.Brought) bool {
		return !b.Addr.IsValid() || b.Addr.Zone() != "" || b.Addr.Is4In6() || b.Pod == ""
	})
}
