// SPDX-License-Identifier: Apache-2.0

package nodebgp

import (
	"context"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
)

// limited are the objects of a user who may watch all kinds but one.
type limited struct {
	store.Objects
	not store.Kind
}

func (l limited) MayWatch(_ context.Context, kind store.Kind) (bool, error) {
	return kind != l.not, nil
}

// A kind that the role of an earlier version does not have is reported at once, and none otherwise.
func TestRights(t *testing.T) {
	denied := make(chan store.Kind, 1)
	kinds := []store.Kind{store.Services(), store.EndpointSlices()}
	checkRights(t.Context(), Config{Objects: limited{not: store.EndpointSlices()}}, denied, kinds...)
	select {
	case kind := <-denied:
		if kind != store.EndpointSlices() {
			t.Errorf("%v is denied", kind)
		}
	default:
		t.Error("nothing is denied")
	}
	checkRights(t.Context(), Config{Objects: limited{not: store.AddressPools()}}, denied, kinds...)
	checkRights(t.Context(), Config{}, denied, kinds...) // a store without users
	if len(denied) > 0 {
		t.Errorf("%v is denied", <-denied)
	}
}
