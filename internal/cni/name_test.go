// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"strings"
	"testing"
)

// TestCheckWord: an error names the first character that is not permitted, whole also where it has several bytes.
func TestCheckWord(t *testing.T) {
	for word, says := range map[string]string{
		"a": "", "0_a.b-C": "", strings.Repeat("a", 255): "",
		"":                       "is empty",
		"-a":                     `"-a" contains '-' at 0`,
		"a/b":                    `"a/b" contains '/' at 1`,
		"señal":                  `"señal" contains 'ñ' at 2`,
		"a\xffb":                 `contains '` + "\uFFFD" + `' at 1`,
		strings.Repeat("a", 256): "is too long: 256 characters, at most 255",
	} {
		err := CheckWord(word)
		switch {
		case says == "" && err != nil:
			t.Errorf("%q: %v", word, err)
		case says != "" && (err == nil || !strings.Contains(err.Error(), says)):
			t.Errorf("%q: %v, not %s", word, err, says)
		}
	}
}
