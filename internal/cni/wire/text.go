// SPDX-License-Identifier: Apache-2.0

package wire

import "unicode/utf8"

// text is the raw content of a JSON string.
type text struct {
	raw []byte
	odd bool // it has escapes or is not ASCII, so raw is not its value
}

// String returns the value. Invalid UTF-8 becomes U+FFFD, as in encoding/json.
func (t text) String() string {
	if !t.odd {
		return string(t.raw)
	}
	b := make([]byte, 0, len(t.raw)+8)
	for s := (scanner{doc: t.raw}); s.at < len(s.doc); {
		r, _ := s.character() // validated by str
		b = utf8.AppendRune(b, r)
	}
	return string(b)
}

// is reports whether the text's value is v, without allocating.
func (t text) is(v string) bool {
	if !t.odd {
		return string(t.raw) == v
	}
	at := 0
	for s := (scanner{doc: t.raw}); s.at < len(s.doc); {
		r, _ := s.character()
		var c [utf8.UTFMax]byte
		n := utf8.EncodeRune(c[:], r)
		if len(v)-at < n || v[at:at+n] != string(c[:n]) {
			return false
		}
		at += n
	}
	return at == len(v)
}

// str consumes a string.
func (s *scanner) str() (text, bool) {
	s.at++ // the quote
	from, odd := s.at, false
	for s.at < len(s.doc) {
		switch c := s.doc[s.at]; {
		case c == '"':
			s.at++
			return text{raw: s.doc[from : s.at-1], odd: odd}, true
		case c < ' ':
			return text{}, false
		case c == '\\' || c >= utf8.RuneSelf:
			odd = true
			if _, ok := s.character(); !ok {
				return text{}, false
			}
		default:
			s.at++
		}
	}
	return text{}, false
}

// character consumes one character of a string, which may be an escape.
func (s *scanner) character() (rune, bool) {
	if s.doc[s.at] != '\\' {
		r, n := utf8.DecodeRune(s.doc[s.at:])
		s.at += n
		return r, true
	}
	s.at++
	if s.at == len(s.doc) {
		return 0, false
	}
	c := s.doc[s.at]
	s.at++
	switch c {
	case '"', '\\', '/':
		return rune(c), true
	case 'b':
		return '\b', true
	case 'f':
		return '\f', true
	case 'n':
		return '\n', true
	case 'r':
		return '\r', true
	case 't':
		return '\t', true
	case 'u':
		r, ok := s.unit()
		if !ok {
			return 0, false
		}
		return s.pair(r), true
	}
	return 0, false
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
	for _, r := range v { // invalid bytes are read as U+FFFD
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
