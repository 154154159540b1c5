// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// unreachable tells errors that are an answer of this node's own kernel.
func unreachable(err error) bool {
	for _, e := range []error{
		unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EHOSTDOWN, unix.ENETDOWN, unix.ECONNREFUSED, unix.EINVAL,
		unix.EADDRNOTAVAIL, unix.ENODEV, unix.ENOBUFS,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

const checksumHint = "switch the device's transmit checksums off: ethtool -K LINK tx-checksum-ip-generic off"

// judge says what is at fault. A peer whose pods are reached is not at fault because it does not answer on the wire.
func (p *prober) judge() {
	r := &p.r
	fault := func(f Fault, hint, format string, args ...any) {
		r.Fault, r.Message, r.Hint = f, fmt.Sprintf(format, args...), hint
	}
	switch {
	case r.OverlayState != ok && r.UnderlayState != ok:
		fault(Underlay, "look at the wire: the peer's link, its address, the switch, a firewall that drops ICMP",
			"peer %s does not answer at %s: %s", r.Peer, r.Underlay, r.UnderlayState)
	case r.OverlayState != ok && r.ChecksumState == broken:
		fault(Checksum, checksumHint, "packets to peer %s, the tunnel's own too, arrive with wrong checksums", r.Peer)
	case r.OverlayState != ok && !p.t.Tunnel:
		fault(Encapsulation, "look at `weft mesh --live` here, and at the peer's route for its own prefix",
			"peer %s answers at %s, but nothing in its prefix at %s: %s", r.Peer, r.Underlay, r.Overlay, r.OverlayState)
	case r.OverlayState != ok:
		fault(Encapsulation, "open the tunnel's UDP port between the nodes, and look at `weft mesh --live` on both",
			"peer %s answers at %s, but not through %s at %s: %s", r.Peer, r.Underlay, r.Backend, r.Overlay, r.OverlayState)
	case r.LargeState != ok:
		fault(MTU, fmt.Sprintf("let the wire carry more, or give pods an MTU of %d", r.Passes),
			"packets of %d bytes, the MTU of pods, do not reach peer %s: %s; %d pass", r.MTU, r.Peer, r.LargeState, r.Passes)
	case r.ChecksumState == broken:
		fault(Checksum, checksumHint,
			"packets to peer %s arrive with wrong checksums: ping works, and nothing else", r.Peer)
	}
}
