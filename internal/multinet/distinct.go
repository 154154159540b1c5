// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"net"

	"github.com/weft-net/weft/internal/model"
)

// checkDistinct rejects duplicate interface names, MACs and addresses in a pod.
func checkDistinct(noun string, list []Selection) error {
	seen := map[string]int{}
	for i, s := range list {
		for _, own := range [][2]string{{"interface", s.Interface}, {"mac", macOf(s.MAC)}} {
			what, value := own[0], own[1]
			if value == "" {
				continue
			}
			if first, ok := seen[what+value]; ok {
				return model.Errorf(model.CodeInvalidConf, "set a different one in each",
					"%s: elements %d and %d request one %s, %q", noun, first+1, i+1, what, value)
			}
			seen[what+value] = i
		}
		for _, text := range s.IPs {
			ip, _ := parseIP(text)
			at := s.Network() + " " + ip.String()
			if first, ok := seen[at]; ok {
				return model.Errorf(model.CodeInvalidConf, "set a different one in each",
					"%s: elements %d and %d request one address, %s of network %s",
					noun, first+1, i+1, ip, s.Network())
			}
			seen[at] = i
		}
	}
	return checkDefaultRoutes(noun, list)
}

// checkDefaultRoutes rejects default routes of one family over two networks.
func checkDefaultRoutes(noun string, list []Selection) error {
	by := map[bool]int{}
	for i, s := range list {
		for _, gw := range s.DefaultRoute {
			is4 := gw.Unmap().Is4()
			if first, ok := by[is4]; ok && first != i {
				return model.Errorf(model.CodeInvalidConf, "keep one of them; several gateways of one network share the load",
					"%s: elements %d and %d both have a default-route of one family", noun, first+1, i+1)
			}
			by[is4] = i
		}
	}
	return nil
}

// macOf returns a MAC address in canonical form; empty stays empty.
func macOf(text string) string {
	mac, err := net.ParseMAC(text)
	if err != nil {
		return text
	}
	return mac.String()
}
