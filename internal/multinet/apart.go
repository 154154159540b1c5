// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"net"

	"github.com/weft-net/weft/internal/model"
)

// apart refuses what can be in a pod only once.
func apart(noun string, list []Selection) error {
	seen := map[string]int{}
	for i, s := range list {
		for _, own := range [][2]string{{"interface", s.Interface}, {"mac", macOf(s.MAC)}} {
			what, value := own[0], own[1]
			if value == "" {
				continue
			}
			if first, ok := seen[what+value]; ok {
				return model.Faultf(model.CodeInvalidConf, "give each its own", "%s: elements %d and %d ask for one %s, %q", noun,
					first+1, i+1, what, value)
			}
			seen[what+value] = i
		}
		for _, text := range s.IPs {
			ip, _ := parseIP(text)
			at := s.Network() + " " + ip.String()
			if first, ok := seen[at]; ok {
				return model.Faultf(model.CodeInvalidConf, "give each its own",
					"%s: elements %d and %d ask for one address, %s of network %s",
					noun, first+1, i+1, ip, s.Network())
			}
			seen[at] = i
		}
	}
	return oneRoute(noun, list)
}

// oneRoute refuses default routes of one family over two networks.
func oneRoute(noun string, list []Selection) error {
	by := map[bool]int{}
	for i, s := range list {
		for _, gw := range s.DefaultRoute {
			is4 := gw.Unmap().Is4()
			if first, ok := by[is4]; ok && first != i {
				return model.Faultf(model.CodeInvalidConf, "keep one of them; several gateways of one network share the load",
					"%s: elements %d and %d both have a default-route of one family", noun, first+1, i+1)
			}
			by[is4] = i
		}
	}
	return nil
}

// macOf is a MAC address in one of its several forms; none stays none.
func macOf(text string) string {
	mac, err := net.ParseMAC(text)
	if err != nil {
		return text
	}
	return mac.String()
}
