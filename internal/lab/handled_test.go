// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
)

// TestHandled: kinds of objects that the lab or its agents handle are not reported as ignored.
func TestHandled(t *testing.T) {
	for kind, want := range map[string]bool{
		"v1 Namespace": true, "networking.k8s.io/v1 NetworkPolicy": true, "weft.dev/v1alpha1 AddressReservation": true,
		"crd.projectcalico.org/v1 IPPool": true, "projectcalico.org/v3 IPReservation": true,
		"crd.projectcalico.org/v1 GlobalNetworkPolicy": false, "v1 Service": false, "apps/v1 Deployment": false,
	} {
		version, name, _ := strings.Cut(kind, " ")
		o, err := store.NewObject(
			fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":"n"},"spec":{}}`, version, name),
		)
		if err != nil {
			t.Fatal(err)
		}
		if got := handled(o); got != want {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
}
