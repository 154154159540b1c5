// SPDX-License-Identifier: Apache-2.0

package state

import (
	"crypto/sha256"
	"fmt"
	"net"
)

// MAC is a 48-bit MAC address as a comparable value; the zero MAC is unset.
type MAC [6]byte

// ParseMAC parses a 48-bit address with colons.
func ParseMAC(s string) (MAC, error) {
	hw, err := net.ParseMAC(s)
	if err != nil {
		return MAC{}, fmt.Errorf("MAC address %q: %w", s, err)
	}
	if len(hw) != 6 {
		return MAC{}, fmt.Errorf("MAC address %q: %d bytes, want 6", s, len(hw))
	}
	return MAC(hw), nil
}

// SeedMAC derives a locally administered unicast address from a seed, so that each computation of a plan chooses the
// same address.
func SeedMAC(seed string) MAC {
	sum := sha256.Sum256([]byte(seed))
	m := MAC(sum[:6])
	m[0] = m[0]&^1 | 2
	return m
}

// IsZero reports whether the address is unset.
func (m MAC) IsZero() bool { return m == MAC{} }

// String prints the address with colons.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// MarshalText prints the address with colons.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText parses an address with colons.
func (m *MAC) UnmarshalText(b []byte) error {
	p, err := ParseMAC(string(b))
	*m = p
	return err
}
