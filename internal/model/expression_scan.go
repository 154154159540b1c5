// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strings"
)

// tokenKind is the kind of a token of an expression.
type tokenKind int

const (
	tokenEnd  tokenKind = iota
	tokenWord           // a label or an operator's word
	tokenText           // a quoted string
	tokenSign           // == != && || ! ( ) { } ,
)

type token struct {
	kind tokenKind
	text string
	at   int
}

// String returns the token's name for messages.
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

// scanError is an error at a character.
type scanError struct{ msg, hint string }

// next returns the next token; at the end of the text it returns tokenEnd each time.
func (s *expressionScanner) next() (token, *scanError) {
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
			return t, &scanError{"the text is not terminated", fmt.Sprintf("end it with %c", q)}
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
		return t, &scanError{
			fmt.Sprintf("unexpected character %q", []rune(rest)[0]), "the signs are ==, !=, &&, ||, !, ( ), { } and the comma",
		}
	}
	s.pos += n
	t.kind, t.text = tokenWord, rest[:n]
	return t, nil
}

func isLabelByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_./-", c) >= 0
}
