// SPDX-License-Identifier: Apache-2.0

package wire

import "unicode/utf8"

// str reads a string. What is no UTF-8 becomes U+FFFD, as encoding/json has it.
func (s *scanner) str() (string, bool) {
	s.at++ // the quote
	from := s.at
	for s.at < len(s.doc) {
		switch c := s.doc[s.at]; {
		case c == '"':
			s.at++
			return string(s.doc[from : s.at-1]), true
		case c == '\\' || c >= utf8.RuneSelf:
			return s.escaped(append(make([]byte, 0, s.at-from+32), s.doc[from:s.at]...))
		case c < ' ':
			return "", false
		}
		s.at++
	}
	return "", false
}

// escaped goes on with a string that does not stand for itself; b is what was read of it.
func (s *scanner) escaped(b []byte) (string, bool) {
	for s.at < len(s.doc) {
		switch c := s.doc[s.at]; {
		case c == '"':
			s.at++
			return string(b), true
		case c == '\\':
			var ok bool
			if b, ok = s.escape(b); !ok {
				return "", false
			}
		case c < ' ':
			return "", false
		default:
			r, n := utf8.DecodeRune(s.doc[s.at:])
			b = utf8.AppendRune(b, r)
			s.at += n
		}
	}
	return "", false
}

func (s *scanner) escape(b []byte) ([]byte, bool) {
	s.at++ // the backslash
	if s.at == len(s.doc) {
		return b, false
	}
	c := s.doc[s.at]
	s.at++
	switch c {
	case '"', '\\', '/':
		return append(b, c), true
	case 'b':
		return append(b, '\b'), true
	case 'f':
		return append(b, '\f'), true
	case 'n':
		return append(b, '\n'), true
	case 'r':
		return append(b, '\r'), true
	case 't':
		return append(b, '\t'), true
	case 'u':
		r, ok := s.unit()
		if !ok {
			return b, false
		}
		return utf8.AppendRune(b, s.pair(r)), true
	}
	return b, false
}

// pair joins r with the low surrogate behind it; a surrogate alone is U+FFFD.
func (s *scanner) pair(r rune) rune {
	if r < 0xd800 || r > 0xdfff {
		return r
	}
	at := s.at
	if r < 0xdc00 && s.next('\\') && s.next('u') {
		if low, ok := s.unit(); ok && low >= 0xdc00 && low <= 0xdfff {
			return (r-0xd800)<<10 | (low - 0xdc00) + 0x10000
		}
	}
	s.at = at
	return utf8.RuneError
}

// unit reads the four digits of \uXXXX.
func (s *scanner) unit() (rune, bool) {
	if len(s.doc)-s.at < 4 {
		return 0, false
	}
	var r rune
	for _, c := range s.doc[s.at : s.at+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	s.at += 4
	return r, true
}

// AppendString appends v as a JSON string.
func AppendString(b []byte, v string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, r := range v { // invalid bytes come as U+FFFD
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
