// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/state"
)

// compare returns how the kernel differs from an attachment's fragment.
func compare(ctx context.Context, spaces kernel.Spaces, want state.Fragment) ([]state.Difference, error) {
	found, err := spaces.Diff(ctx, want)
	return slices.DeleteFunc(found, enabledForwarding), err
}

// enabledForwarding reports whether a difference is that a pod forwards which began without. Only a privileged process
// can enable it in a pod, and does so on purpose: KubeVirt for a guest with masquerade, the runtime for a sysctl of the
// pod's security context, a VPN.
func enabledForwarding(d state.Difference) bool {
	if d.Space != state.Pod || d.Have != "1" {
		return false
	}
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		if d.Want == (state.Sysctl{Name: name, Value: "0"}).String() {
			return true
		}
	}
	return false
}
