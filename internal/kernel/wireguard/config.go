// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"strings"
)

// KeyLen is the length of all of WireGuard's keys, in bytes.
const KeyLen = 32

// PublicKey identifies a peer.
type PublicKey [KeyLen]byte

// String prints the key as WireGuard's own tools do.
func (k PublicKey) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// Secret is a private key or a preshared key. It is never printed.
type Secret [KeyLen]byte

// String prints only whether there is one.
func (s Secret) String() string {
	if s == (Secret{}) {
		return "(none)"
	}
	return "(secret)"
}

// GoString is String, for %#v.
func (s Secret) GoString() string { return s.String() }

// Format is String for every verb, so that a key is not printed by accident.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, s.String()) }

// ParseKey parses a key in the format of WireGuard's own tools. The error does not contain it.
func ParseKey(text string) (k [KeyLen]byte, err error) {
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(b) != KeyLen {
		return k, fmt.Errorf("no key: %d bytes in base64 are wanted", KeyLen)
	}
	return [KeyLen]byte(b), nil
}

// Config is the complete configuration of a device.
type Config struct {
	Private Secret
	// Shared is the preshared key of all peers; zero is none.
	Shared Secret
	Port   uint16
	// Keepalive is in seconds; 0 is none.
	Keepalive int
	Peers     []Peer
}

// Peer is another node, identified by its key.
type Peer struct {
	Key      PublicKey
	Endpoint netip.AddrPort
	// Allowed are its addresses (AllowedIPs).
	Allowed []netip.Prefix
}
