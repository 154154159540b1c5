// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// ReleaseFromNode releases a lease from the process's own namespace if the client's namespace is deleted: the server
// identifies the lease by the message's content, if it is reachable at all.
func ReleaseFromNode(g Grant, id Identity, w Options) error {
	if g.Family != IPv4 {
		return errors.New("a DHCPv6 server can only be reached on its own link")
	}
	old, err := dhcpv4.FromBytes(g.Packet)
	if err != nil {
		return fmt.Errorf("remembered lease: %w", err)
	}
	server := addr4(old.ServerIdentifier())
	if !server.IsValid() {
		return errors.New("the server did not say its address")
	}
	c := &client4{world: w, link: Link{MAC: old.ClientHWAddr}, id: id}
	m, err := c.release(old)
	if err != nil {
		return err
	}
	conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(server, serverPort4)))
	if err != nil {
		return fmt.Errorf("DHCP server: %w", err)
	}
	_, err = conn.Write(m.ToBytes())
	return errors.Join(err, conn.Close())
}
