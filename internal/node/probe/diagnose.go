// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// unreachable reports whether an error is a response of this node's own kernel.
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

const checksumHint = "turn off the device's transmit checksum offload: ethtool -K LINK tx-checksum-ip-generic off"

// diagnose finds the problem. A peer whose pods are reachable has none if it does not respond on the underlay.
func (p *prober) diagnose() {
	r := &p.r
	report := func(p Problem, hint, format string, args ...any) {
		r.Problem, r.Message, r.Hint = p, fmt.Sprintf(format, args...), hint
	}
	switch {
	case r.OverlayState != ok && r.UnderlayState != ok:
		report(Underlay, "check the underlay: the peer's link, its address, the switch, a firewall that drops ICMP",
			"peer %s does not answer at %s: %s", r.Peer, r.Underlay, r.UnderlayState)
	case r.OverlayState != ok && r.ChecksumState == broken:
		report(Checksum, checksumHint, "packets to peer %s, the tunnel's own too, arrive with wrong checksums", r.Peer)
	case r.OverlayState != ok && !p.t.Tunnel:
		report(Encapsulation, "run `weft mesh --live` here, and check the peer's route to its own podCIDR",
			"peer %s answers at %s, but no address of its podCIDR does, at %s: %s", r.Peer, r.Underlay, r.Overlay, r.OverlayState)
	case r.OverlayState != ok:
		report(Encapsulation, "open the tunnel's UDP port between the nodes, and run `weft mesh --live` on both",
			"peer %s answers at %s, but not through %s at %s: %s", r.Peer, r.Underlay, r.Backend, r.Overlay, r.OverlayState)
	case r.LargeState != ok && p.cut:
		report(MTU, "`weft mesh ping "+r.Peer+"` on the node measures how much passes",
			"packets of %d bytes, the MTU of pods, do not reach peer %s: %s; %d pass, perhaps more", r.MTU, r.Peer, r.LargeState,
			r.Passes)
	case r.LargeState != ok:
		report(MTU, fmt.Sprintf("raise the MTU of the underlay, or set the MTU of pods to %d", r.Passes),
			"packets of %d bytes, the MTU of pods, do not reach peer %s: %s; %d pass", r.MTU, r.Peer, r.LargeState, r.Passes)
	case r.ChecksumState == broken:
		report(Checksum, checksumHint,
			"packets to peer %s arrive with wrong checksums: ping works, and nothing else", r.Peer)
	}
}
