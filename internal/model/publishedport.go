// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// PublishedPort is a port of a container that a container engine publishes at a port of the node.
type PublishedPort struct {
	// Protocol is tcp, udp or sctp.
	Protocol string `json:"protocol"`
	// ContainerPort is the container's port.
	ContainerPort uint16 `json:"containerPort"`
	// HostIP is the node's address. The zero value is every address; 0.0.0.0 and :: are every address of their family.
	HostIP netip.Addr `json:"hostIP,omitzero"`
	// HostPort is the node's port; 0: the agent chooses one.
	HostPort uint16 `json:"hostPort,omitempty"`
	// HostPortEnd, if it is greater than HostPort, is the end of the range in which the agent chooses one.
	HostPortEnd uint16 `json:"hostPortEnd,omitempty"`
}

// String returns the port as docker run -p has it: [HOSTIP:]HOSTPORT[-END]:PORT/PROTOCOL.
func (p PublishedPort) String() string {
	to := fmt.Sprintf("%d/%s", p.ContainerPort, p.Protocol)
	at := ""
	if p.HostPort != 0 {
		at = strconv.Itoa(int(p.HostPort))
	}
	if p.HostPortEnd > p.HostPort {
		at += "-" + strconv.Itoa(int(p.HostPortEnd))
	}
	switch {
	case p.HostIP.IsValid():
		return net.JoinHostPort(p.HostIP.String(), at+":"+to)
	case at == "":
		return to
	}
	return at + ":" + to
}
