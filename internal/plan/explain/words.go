// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"strconv"
	"strings"
)

// words reads the words of a rule. Names in quotes are one word, without the quotes.
type words struct{ list []string }

// split returns the words of a rule's text; braces and commas of anonymous sets are left out, so that its elements are
// separate words between "{" and "}".
func split(text string) []string {
	var out []string
	set := false
	for len(text) > 0 {
		text = strings.TrimLeft(text, " \t")
		if text == "" {
			break
		}
		if text[0] == '"' {
			end := strings.IndexByte(text[1:], '"')
			if end < 0 {
				return append(out, text[1:])
			}
			out, text = append(out, text[1:1+end]), text[2+end:]
			continue
		}
		end := strings.IndexAny(text, " \t")
		if end < 0 {
			end = len(text)
		}
		word := text[:end]
		text = text[end:]
		for strings.HasPrefix(word, "{") {
			out, word, set = append(out, "{"), word[1:], true
		}
		closing := strings.HasSuffix(word, "}")
		word = strings.TrimSuffix(strings.TrimSuffix(word, "}"), ",")
		parts := []string{word}
		if set {
			parts = strings.Split(word, ",")
		}
		for _, part := range parts {
			if part = strings.Trim(part, `"`); part != "" {
				out = append(out, part)
			}
		}
		if closing {
			out, set = append(out, "}"), false
		}
	}
	return out
}

func (w *words) end() bool { return len(w.list) == 0 }

func (w *words) peek() string {
	if w.end() {
		return ""
	}
	return w.list[0]
}

func (w *words) next() string {
	word := w.peek()
	w.skip(1)
	return word
}

func (w *words) skip(n int) { w.list = w.list[min(n, len(w.list)):] }

func (w *words) rest() []string { return w.list }

// values reads a value, or those of an anonymous set.
func (w *words) values() []string {
	if w.peek() != "{" {
		return []string{w.next()}
	}
	w.next()
	var out []string
	for !w.end() && w.peek() != "}" {
		out = append(out, w.next())
	}
	w.next()
	return out
}

// skipToVerdict leaves out everything up to a verdict.
func (w *words) skipToVerdict() {
	for !w.end() && !slices.Contains(verdicts(), w.peek()) {
		w.next()
	}
}

// verdicts are the words with which what a rule does begins; "rewrite" and "decides" are not nft's
// (kernel/nft, Ruleset).
func verdicts() []string {
	return []string{
		"accept", "drop", "reject", "return", "jump", "goto", "queue", "masquerade", "snat", "dnat", "redirect", "notrack",
		"rewrite", "vmap", "decides",
	}
}

func parseNumber(s string) (int, error) {
	n, err := strconv.ParseUint(s, 0, 32)
	return int(n), err
}

// protocolNumber returns the number of a protocol (IANA), "" if it is unknown.
func protocolNumber(name string) string {
	return map[string]string{"tcp": "6", "udp": "17", "sctp": "132", "icmp": "1", "ipv6-icmp": "58"}[name]
}
