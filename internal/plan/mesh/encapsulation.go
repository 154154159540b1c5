// SPDX-License-Identifier: Apache-2.0

package mesh

// encapsulation is the format of a backend's packets.
type encapsulation struct {
	name string // of its chain
	// port is the UDP port; 0 is IP in IP.
	port uint16
	// acceptForeign are rules that accept packets that do not belong to the mesh.
	acceptForeign []string
	inner         [2]innerHeader // IPv4 in IPv4, IPv6 in IPv6; no backend mixes them
}

// innerHeader has the nft expressions for the inner packet's family and addresses.
type innerHeader struct{ protocol, source, destination string }
