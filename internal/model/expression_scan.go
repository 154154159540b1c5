// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strings"
)

// tokenKind is what a token of an expression is.
type tokenKind int

const (
	tokenEnd  tokenKind = iota
	tokenWord           // a label or an operator's word
	tokenText           // what stands in quotes
	tokenSign           // == != && || ! ( ) { } ,
)

type token struct {
	kind tokenKind
	text string
	at   int
}

// String names the token in messages.
func (t token) String() string {
	switch t.kind {
	case tokenEnd:
		return "the end"
	case tokenText:
		return "the text \"" + t.text + "\""
	default:
		return "'" + t.text + "'"
	}
}

type expressionScanner struct {
	text string
	pos  int
}

// complaint is what is wrong with a character.
type complaint struct{ msg, hint string }

// next gives the next token; at the end it gives the end again and again.
func (s *expressionScanner) next() (token, *complaint) {
	for s.pos < len(s.text) && strings.IndexByte(" \t\r\n", s.text[s.pos]) >= 0 {
		s.pos++
	}
	t := token{at: s.pos}
	if s.pos == len(s.text) {
		return t, nil
	}
	rest := s.text[s.pos:]
	for _, sign := range []string{"==", "!=", "&&", "||", "!", "(", ")", "{", "}", ","} {
		if strings.HasPrefix(rest, sign) {
			s.pos += len(sign)
			t.kind, t.text = tokenSign, sign
			return t, nil
		}
	}
	if q := rest[0]; q == '"' || q == '\'' {
		end := strings.IndexByte(rest[1:], q)
		if end < 0 {
			return t, &complaint{"a text begins here and does not end", fmt.Sprintf("put %c behind it", q)}
		}
		s.pos += end + 2
		t.kind, t.text = tokenText, rest[1:1+end]
		return t, nil
	}
	n := 0
	for n < len(rest) && isLabelByte(rest[n]) {
		n++
	}
	if n == 0 {
		return t, &complaint{
			fmt.Sprintf("%q cannot be understood", []rune(rest)[0]), "the signs are ==, !=, &&, ||, !, ( ), { } and the comma",
		}
	}
	s.pos += n
	t.kind, t.text = tokenWord, rest[:n]
	return t, nil
}

func isLabelByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_./-", c) >= 0
}
