// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// leastIPv6 is the least MTU of a link with IPv6 addresses (RFC 8200, 5).
const leastIPv6 = 1280

// CheckMTU refuses IPv6 addresses on links whose planned MTU is too small for IPv6: the kernel would refuse them with "invalid
// argument".
func CheckMTU(conf model.PluginConf, f state.Fragment) error {
	for _, s := range []state.Space{f.Pod, f.Host} {
		for _, l := range s.Links {
			if l.MTU == 0 || l.MTU >= leastIPv6 {
				continue
			}
			on := func(a state.Addr) bool { return a.Link == l.Name && a.Prefix.Addr().Is6() }
			i := slices.IndexFunc(s.Addrs, func(a state.Addr) bool { return on(a) && !a.Prefix.Addr().IsLinkLocalUnicast() })
			if i < 0 {
				i = slices.IndexFunc(s.Addrs, on)
			}
			if i >= 0 {
				return model.Errorf(model.CodeInvalidConf, "set mtu to 1280 or more, or configure IPv4 addresses only",
					"plugin %s: mtu %d is below %d, which the IPv6 address %s needs", conf.Type, l.MTU, leastIPv6, s.Addrs[i].Prefix)
			}
		}
	}
	return nil
}
