// SPDX-License-Identifier: Apache-2.0

package wire

// maxDepth limits nesting, as encoding/json does.
const maxDepth = 10000

// Field returns the string value of a top-level key of the JSON object doc; the last one counts, as in encoding/json.
// It is not found if doc is not a valid object or the value is not a string. Keys are compared exactly.
func Field(doc []byte, key string) (string, bool) {
	s := scanner{doc: doc}
	t, found := s.find(key)
	if !found {
		return "", false
	}
	return t.String(), true
}

// Socket returns the path of the agent's socket in the configuration.
func Socket(conf []byte) string {
	if s, ok := Field(conf, "socket"); ok && s != "" {
		return s
	}
	return DefaultSocket
}

// find walks over the whole document.
func (s *scanner) find(key string) (value text, found bool) {
	if !s.take('{') || !s.down() {
		return text{}, false
	}
	for more := !s.take('}'); more; more = !s.take('}') {
		name, ok := s.name()
		if !ok {
			return text{}, false
		}
		if !name.is(key) {
			ok = s.value()
		} else if found = s.peek() == '"'; found {
			value, ok = s.str()
		} else {
			ok = s.value()
		}
		if !ok || s.peek() != '}' && !s.comma() {
			return text{}, false
		}
	}
	s.space()
	return value, found && s.at == len(s.doc)
}

// scanner walks over JSON (RFC 8259) without building anything.
type scanner struct {
	doc   []byte
	at    int
	depth int
}

// space skips white space.
func (s *scanner) space() {
	for s.at < len(s.doc) {
		switch s.doc[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

// peek returns the next byte that is not white space, 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.at == len(s.doc) {
		return 0
	}
	return s.doc[s.at]
}

// take consumes c if it comes next.
func (s *scanner) take(c byte) bool {
	if s.peek() != c || c == 0 {
		return false
	}
	s.at++
	return true
}

// name consumes a member's name and the colon behind it.
func (s *scanner) name() (text, bool) {
	if s.peek() != '"' {
		return text{}, false
	}
	t, ok := s.str()
	return t, ok && s.take(':')
}

// comma consumes a comma that is not followed by an end.
func (s *scanner) comma() bool { return s.take(',') && s.peek() != '}' && s.peek() != ']' }

// object skips an object.
func (s *scanner) object() bool {
	if !s.take('{') || !s.down() {
		return false
	}
	for more := !s.take('}'); more; more = !s.take('}') {
		if _, ok := s.name(); !ok || !s.value() || s.peek() != '}' && !s.comma() {
			return false
		}
	}
	s.depth--
	return true
}

// down goes one level deeper.
func (s *scanner) down() bool {
	s.depth++
	return s.depth <= maxDepth
}

// value skips any value.
func (s *scanner) value() bool {
	switch c := s.peek(); {
	case c == '{':
		return s.object()
	case c == '[':
		return s.array()
	case c == '"':
		_, ok := s.str()
		return ok
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	}
	return false
}

func (s *scanner) array() bool {
	if !s.take('[') || !s.down() {
		return false
	}
	for more := !s.take(']'); more; more = !s.take(']') {
		if !s.value() || s.peek() != ']' && !s.comma() {
			return false
		}
	}
	s.depth--
	return true
}

func (s *scanner) literal(word string) bool {
	if len(s.doc)-s.at < len(word) || string(s.doc[s.at:s.at+len(word)]) != word {
		return false
	}
	s.at += len(word)
	return true
}

func (s *scanner) number() bool {
	s.next('-')
	if !s.next('0') && !s.digits() {
		return false
	}
	if s.next('.') && !s.digits() {
		return false
	}
	if s.next('e') || s.next('E') {
		if !s.next('+') {
			s.next('-')
		}
		return s.digits()
	}
	return true
}

// next consumes c if it is the very next byte.
func (s *scanner) next(c byte) bool {
	if s.at < len(s.doc) && s.doc[s.at] == c {
		s.at++
		return true
	}
	return false
}

func (s *scanner) digits() bool {
	from := s.at
	for s.at < len(s.doc) && s.doc[s.at] >= '0' && s.doc[s.at] <= '9' {
		s.at++
	}
	return s.at > from
}
