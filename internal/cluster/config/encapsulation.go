// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path/filepath"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// encapsulations returns the built-in backends of network.encapsulation.
func encapsulations() []string {
	return []string{"host-gw", "vxlan", "udp", "ipip", "wireguard", "bgp"}
}

const maxKeepalive = 65535 * time.Second

func (n Network) checkEncapsulation() error {
	if !slices.Contains(encapsulations(), n.Encapsulation) && !model.IsCustomBackend(n.Encapsulation) {
		hint := "host-gw, vxlan, udp, ipip, wireguard or bgp; a backend of your own is named DOMAIN/NAME"
		if slices.Contains([]string{"ipsec", "aws-vpc", "gce", "ali-vpc", "tencent-vpc"}, n.Encapsulation) {
			hint = "use wireguard"
		}
		return unsupported(hint, "network.encapsulation %q is not supported", n.Encapsulation)
	}
	if n.DirectRouting && n.Encapsulation == "host-gw" {
		return invalid("leave it out: host-gw is direct", "network.directRouting has no effect with network.encapsulation %q",
			n.Encapsulation)
	}
	if n.DirectRouting && n.Encapsulation != "vxlan" && n.Encapsulation != "ipip" {
		return invalid("leave it out", "network.directRouting has no effect with network.encapsulation %q", n.Encapsulation)
	}
	if n.VNI < 0 || n.VNI > maxVNI ||
		n.VNI == 0 && n.Encapsulation == "vxlan" { // pools may have VXLAN tunnels in any mode
		return invalid("flannel's is 1", "network.vni %d is not between 1 and %d", n.VNI, maxVNI)
	}
	for _, p := range []struct {
		key, hint string
		port      int
	}{
		{"vxlanPort", "the kernel's and flannel's is 8472, the registered one 4789", n.VXLANPort},
		{"udpPort", "flannel's is 8285", n.UDPPort},
		{"wireguardPort", "WireGuard's is 51820", n.WireguardPort},
		{"wireguardPortV6", "flannel's is 51821", n.WireguardPortV6},
	} {
		if p.port < 1 || p.port > maxPort {
			return invalid(p.hint, "network.%s %d is not between 1 and %d", p.key, p.port, maxPort)
		}
	}
	const leastUnderlay = 576
	if n.UnderlayMTU != 0 && (n.UnderlayMTU < leastUnderlay || n.UnderlayMTU > maxMTU) {
		return invalid("leave it out, and it is that of the interface to the other nodes",
			"network.underlayMTU %d is not between %d and %d", n.UnderlayMTU, leastUnderlay, maxMTU)
	}
	return n.checkWireguard()
}

func (n Network) checkWireguard() error {
	if !slices.Contains([]string{"separate", "auto", "ipv4", "ipv6"}, n.WireguardMode) {
		return invalid("separate, auto, ipv4 or ipv6", "network.wireguardMode %q is not known", n.WireguardMode)
	}
	if k := time.Duration(n.WireguardKeepalive); k < 0 || k > maxKeepalive || k%time.Second != 0 {
		return invalid("as 25s; 0s is never", "network.wireguardKeepalive %s is not a number of seconds up to %d", k,
			maxKeepalive/time.Second)
	}
	for _, p := range [][2]string{
		{"wireguardKeyFile", n.WireguardKeyFile},
		{"wireguardPSKFile", n.WireguardPSKFile},
		{"masqAgentConfig", n.MasqAgentConfig},
	} {
		if p[1] != "" && !filepath.IsAbs(p[1]) {
			return invalid("write the whole path", "network.%s %q is no absolute path", p[0], p[1])
		}
	}
	if n.WireguardKeyFile == "" {
		return invalid("leave it out, and the default counts", "network.wireguardKeyFile is empty")
	}
	return nil
}
