// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"strconv"

	"github.com/weft-net/weft/internal/ipam"
)

// maxOption is how long the value of a DHCPv4 option can be, in bytes.
const maxOption = 255

// The options (RFC 2132) that weft uses itself.
const (
	optPad           = 0
	optSubnetMask    = 1
	optRouters       = 3
	optDNSServers    = 6
	optHostName      = 12
	optDomainName    = 15
	optInterfaceMTU  = 26
	optStaticRoutes  = 33
	optRequestedAddr = 50
	optMessageType   = 53
	optServerID      = 54
	optVendorClass   = 60
	optClientID      = 61
	optUserClass     = 77
	optDomainSearch  = 119
	optClasslessRte  = 121
	optEnd           = 255
)

// defaultRequest returns the options that are requested by default: the reference plugin's two, and those that a CNI
// result can carry.
func defaultRequest() []uint8 {
	return []uint8{
		optSubnetMask, optClasslessRte, optRouters, optStaticRoutes, optDNSServers, optDomainName, optDomainSearch,
		optInterfaceMTU,
	}
}

// optionCode reads an option's number or its name in the reference plugin.
func optionCode(list string, i int, option string) (uint8, error) {
	switch option {
	case "dhcp-client-identifier":
		return optClientID, nil
	case "subnet-mask":
		return optSubnetMask, nil
	case "routers":
		return optRouters, nil
	case "host-name":
		return optHostName, nil
	case "user-class":
		return optUserClass, nil
	case "vendor-class-identifier":
		return optVendorClass, nil
	}
	n, err := strconv.ParseUint(option, 10, 8)
	if err != nil || n == optPad || n == optEnd {
		return 0, ipam.Invalid(
			"a number from 1 to 254, dhcp-client-identifier, subnet-mask, routers, host-name, user-class or vendor-class-identifier",
			"%s[%d].option %q is no DHCP option", list, i, option)
	}
	return uint8(n), nil
}

// notProvidable returns why an option cannot be provided; empty: it can.
func notProvidable(code uint8) string {
	switch code {
	case optRequestedAddr, optMessageType, optServerID:
		return "the protocol's own"
	case 55:
		return "what request is for"
	}
	return ""
}
