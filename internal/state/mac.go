// SPDX-License-Identifier: Apache-2.0

package state

import (
	"crypto/sha256"
	"fmt"
	"net"
)

// MAC is a 48-bit hardware address as a comparable value; the zero MAC is unset.
type MAC [6]byte

// ParseMAC parses the colon form of a 48-bit address.
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

// SeedMAC derives a locally administered unicast address from a seed, so that a plan made twice chooses the same one.
func SeedMAC(seed string) MAC {
	sum := sha256.Sum256([]byte(seed))
	m := MAC(sum[:6])
	m[0] = m[0]&^1 | 2
	return m
}

// IsZero tells whether the address is unset.
func (m MAC) IsZero() bool { return m == MAC{} }

// String prints the colon form.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// MarshalText prints the colon form.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText parses the colon form.
func (m *MAC) UnmarshalText(b []byte) error {
	p, err := ParseMAC(string(b))
	*m = p
	return err
}
