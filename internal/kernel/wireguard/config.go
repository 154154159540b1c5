// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"strings"
)

// KeyLen is the length of all of WireGuard's keys.
const KeyLen = 32

// PublicKey names a peer.
type PublicKey [KeyLen]byte

// String is the key as WireGuard's own tools write it.
func (k PublicKey) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// Secret is a private key, or one that peers share. It does not show itself.
type Secret [KeyLen]byte

// String tells only whether there is one.
func (s Secret) String() string {
	if s == (Secret{}) {
		return "(none)"
	}
	return "(secret)"
}

// GoString is String, for %#v.
func (s Secret) GoString() string { return s.String() }

// Format is String for every verb: a key that is shown by accident is no secret any more.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, s.String()) }

// ParseKey reads a key as WireGuard's own tools write it. The error does not repeat it.
func ParseKey(text string) (k [KeyLen]byte, err error) {
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(b) != KeyLen {
		return k, fmt.Errorf("no key: %d bytes in base64 are wanted", KeyLen)
	}
	return [KeyLen]byte(b), nil
}

// Config is all that a device is told.
type Config struct {
	Private Secret
	// Shared is the key that all peers share; zero is none.
	Shared Secret
	Port   uint16
	// Keepalive is in seconds; 0 is none.
	Keepalive int
	Peers     []Peer
}

// Peer is another node, known by its key.
type Peer struct {
	Key      PublicKey
	Endpoint netip.AddrPort
	// Allowed are the addresses that it has.
	Allowed []netip.Prefix
}
