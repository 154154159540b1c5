// SPDX-License-Identifier: Apache-2.0

package model

import "strings"

// CheckName refuses what Kubernetes does not take as a name of a node or a pod: an RFC 1123 subdomain of at most 253
// characters. The field is named in the error.
func CheckName(field, name string) error {
	const most, hint = 253,
		"lower case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253 of them"
	ok := len(name) <= most
	for label := range strings.SplitSeq(name, ".") {
		ok = ok && isLabel(label)
	}
	if ok {
		return nil
	}
	return Faultf(CodeInvalidConf, hint, "%s %q cannot be used", field, name)
}

// OwnBackend reports whether a name is that of a mesh back end which somebody has added to weft's (pkg/backend): such
// names are DOMAIN/NAME, as example.org/relay. Whether an agent has it, that agent knows.
func OwnBackend(name string) bool {
	domain, own, ok := strings.Cut(name, "/")
	return ok && CheckName("", domain) == nil && CheckName("", own) == nil
}

func isLabel(s string) bool {
	for i := range len(s) {
		c := s[i]
		inside := c == '-' && i > 0 && i < len(s)-1
		if !inside && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
