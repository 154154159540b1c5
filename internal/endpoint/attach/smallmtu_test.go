// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// TestSmallMTU: a network whose MTU is below IPv6's least one is refused with IPv6 addresses, by the value and the address, and
// nothing is left. With IPv4 addresses it works.
func TestSmallMTU(t *testing.T) {
	n := newNode(t)
	for name, small := range map[string]string{
		"bridge": strings.Replace(bridge, `"ipMasq":true`, `"mtu":1000`, 1),
		"ptp":    `{"type":"ptp","mtu":1000,"ipam":{"type":"host-local","subnet":"10.8.0.0/24","dataDir":"DATA"}}`,
	} {
		job := n.podJob(strings.Replace(small, "10.8.0.0/24", "fd00:8::/64", 1), "web-0")
		_, err := n.Add(t.Context(), job)
		wantCode(t, name, err, model.CodeInvalidConf, "plugin "+name+": mtu 1000 is below 1280, which the IPv6 address fd00:8::")
		n.clean(name + ", IPv6")
		job = n.podJob(small, "web-1")
		n.add(job)
		if err := n.Del(t.Context(), job); err != nil {
			t.Error(err)
		}
		n.clean(name + ", IPv4")
	}
}
