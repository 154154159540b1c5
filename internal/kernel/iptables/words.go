// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"strings"
)

// Words splits a rule as iptables-restore does: at white space, but not between double quotes, where a backslash
// escapes the next character.
func Words(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord, quoted := false, false
	for i := 0; i < len(text); i++ {
		switch ch := text[i]; {
		case ch == '\n' || ch == 0:
			return nil, errors.New("a rule is one line")
		case ch == '"':
			quoted, inWord = !quoted, true
		case quoted && ch == '\\' && i+1 < len(text):
			i++
			word.WriteByte(text[i])
		case !quoted && (ch == ' ' || ch == '\t'):
			if inWord {
				words = append(words, word.String())
				word.Reset()
			}
			inWord = false
		default:
			word.WriteByte(ch)
			inWord = true
		}
	}
	if quoted {
		return nil, errors.New("a double quote is not closed")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// leadsTo returns the chain that a rule jumps or goes to, "" when none. Built-in targets look the same.
func leadsTo(words []string) string {
	for i, w := range words {
		if (w == "-j" || w == "-g" || w == "--jump" || w == "--goto") && i+1 < len(words) {
			return words[i+1]
		}
	}
	return ""
}
