// SPDX-License-Identifier: Apache-2.0

package mesh

// encapsulation is how a back end's packets look on the wire.
type encapsulation struct {
	name string // of its chain
	// port is the UDP port; 0 is IP in IP.
	port uint16
	// foreign are rules that accept what is not of the mesh.
	foreign []string
	inner   [2]inner // IPv4 in IPv4, IPv6 in IPv6; no back end mixes them
}

// inner is where a packet's addresses are found in a tunnel's packet, and how its family is known.
type inner struct{ is, source, destination string }
