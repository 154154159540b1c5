// SPDX-License-Identifier: Apache-2.0

// Package domains writes domain names as they stand in options: labels with their lengths (RFC 1035, 3.1), not
// compressed.
package domains

import "strings"

const (
	mostLabel = 63
	mostName  = 255
)

// Append appends the names, in order, as long as no more than most bytes are appended. What is no name is left out.
func Append(b []byte, names []string, most int) []byte {
	begin := len(b)
	for _, name := range names {
		wire, ok := encode(name)
		if !ok {
			continue
		}
		if len(b)-begin+len(wire) > most {
			break
		}
		b = append(b, wire...)
	}
	return b
}

func encode(name string) (wire []byte, ok bool) {
	name = strings.TrimSuffix(name, ".")
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > mostLabel ||
			strings.ContainsFunc(label, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, false
		}
		wire = append(append(wire, byte(len(label))), label...)
	}
	wire = append(wire, 0)
	return wire, len(wire) <= mostName
}
