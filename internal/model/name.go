// SPDX-License-Identifier: Apache-2.0

package model

import "strings"

// CheckName returns an error, which names the field, unless the name is valid for a node or pod in Kubernetes: an RFC
// 1123 subdomain of at most 253 characters.
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
	return Errorf(CodeInvalidConf, hint, "%s %q cannot be used", field, name)
}

// IsCustomBackend reports whether a name has the form of a mesh backend that is not weft's own (pkg/backend):
// DOMAIN/NAME, as example.org/relay. Only the agent can check whether it has that backend.
func IsCustomBackend(name string) bool {
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
