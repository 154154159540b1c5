// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
)

// A peer on an interface has no other address, and each mistake names field and value.
func TestBGPPeerInterface(t *testing.T) {
	for _, c := range []struct{ spec, want string }{
		{`{"interface": "eth1", "asNumber": 65001}`, ""},
		{`{"interface": "eth1"}`, "spec.asNumber is missing"},
		{`{"interface": "eth1", "peerIP": "192.0.2.1", "asNumber": 65001}`, `spec.interface "eth1" and spec.peerIP "192.0.2.1" are both set`},
		{`{"interface": "eth1", "peerSelector": "all()"}`, `spec.interface "eth1" and spec.peerSelector "all()" are both set`},
		{`{"interface": "eth1/2", "asNumber": 65001}`, `spec.interface "eth1/2" is not the name of an interface`},
		{`{"interface": "an-interface-name", "asNumber": 65001}`, `spec.interface "an-interface-name" is not`},
		{`{"interface": 7, "asNumber": 65001}`, "interface"},
	} {
		o, err := store.NewObject([]byte(`{"apiVersion": "weft.dev/v1alpha1", "kind": "BGPPeer", "metadata": {"name": "x"}, "spec": ` + c.spec + `}`))
		if err != nil {
			t.Fatal(err)
		}
		p, warnings, err := BGPPeer(o)
		switch {
		case c.want == "":
			if err != nil || len(warnings) > 0 || p.Interface != "eth1" || p.Addr.IsValid() {
				t.Errorf("%s: %+v, %v, %v", c.spec, p, warnings, err)
			}
		case err == nil || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: error %v, want %q", c.spec, err, c.want)
		}
	}
}
