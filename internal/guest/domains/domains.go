// SPDX-License-Identifier: Apache-2.0

// Package domains encodes domain names for DHCP and RA options: length-prefixed labels (RFC 1035, 3.1), not compressed.
package domains

import "strings"

const (
	maxLabel = 63
	maxName  = 255
)

// Append appends the names, in order, up to limit bytes. It skips invalid names.
func Append(b []byte, names []string, limit int) []byte {
	start := len(b)
	for _, name := range names {
		wire, ok := encode(name)
		if !ok {
			continue
		}
		if len(b)-start+len(wire) > limit {
			break
		}
		b = append(b, wire...)
	}
	return b
}

func encode(name string) (wire []byte, ok bool) {
	name = strings.TrimSuffix(name, ".")
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabel ||
			strings.ContainsFunc(label, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, false
		}
		wire = append(append(wire, byte(len(label))), label...)
	}
	wire = append(wire, 0)
	return wire, len(wire) <= maxName
}
