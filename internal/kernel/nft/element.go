// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/state"
)

// elem is a compiled element: a key, or with different ends a range of keys; both ends are inside.
type elem struct {
	lo, hi  []byte
	val     []byte   // of a map
	verdict *verdict // of a verdict map
	comment string
	keeps   *expr // a limit or a count of its own
}

// verdict is what a verdict map or a rule decides.
type verdict struct {
	code  int32
	chain string
}

// sameValue tells whether both elements map to the same value.
func (e elem) sameValue(f elem) bool {
	if keeping(e.keeps) != keeping(f.keeps) {
		return false
	}
	if e.verdict != nil && f.verdict != nil {
		return *e.verdict == *f.verdict
	}
	return e.verdict == f.verdict && bytes.Equal(e.val, f.val)
}

func compareElems(a, b elem) int {
	if c := bytes.Compare(a.lo, b.lo); c != 0 {
		return c
	}
	return bytes.Compare(a.hi, b.hi)
}

// compileElement turns an element's words into bytes.
func (s set) compileElement(in state.Element) (elem, error) {
	e := elem{comment: in.Comment}
	if len(in.Key) != len(s.key) {
		return e, fmt.Errorf("element %v: %d parts, the key %q has %d", in.Key, len(in.Key), typesString(s.key), len(s.key))
	}
	if len(in.Comment) > 127 {
		return e, fmt.Errorf("element %v: comment of %d bytes, at most 127 fit", in.Key, len(in.Comment))
	}
	for i, t := range s.key {
		lo, hi, err := t.parseRange(in.Key[i])
		if err != nil {
			return e, fmt.Errorf("element %v: %w", in.Key, err)
		}
		if !s.interval && !bytes.Equal(lo, hi) {
			return e, fmt.Errorf("element %v: %q is a range, and the set is no interval set", in.Key, in.Key[i])
		}
		e.lo, e.hi = s.appendPart(e.lo, lo), s.appendPart(e.hi, hi)
	}
	var err error
	switch {
	case !s.isMap && len(in.Val) > 0:
		err = fmt.Errorf("value %v in a set", in.Val)
	case s.verdicts:
		e.verdict, err = parseVerdict(strings.Join(in.Val, " "))
	case s.isMap:
		e.val, err = parseParts(s.data, in.Val)
	}
	if err == nil {
		e.keeps, err = s.compileKeeping(in.Keeps)
	}
	if err != nil {
		return e, fmt.Errorf("element %v: %w", in.Key, err)
	}
	return e, nil
}

// appendPart appends one part of a key; parts of a concatenation are padded.
func (s set) appendPart(b, part []byte) []byte {
	b = append(b, part...)
	for len(s.key) > 1 && len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func parseParts(ts []datatype, parts []string) ([]byte, error) {
	if len(parts) != len(ts) {
		return nil, fmt.Errorf("value %v: %d parts, the type %q has %d", parts, len(parts), typesString(ts), len(ts))
	}
	var b []byte
	for i, t := range ts {
		p, err := t.parse(parts[i])
		if err != nil {
			return nil, err
		}
		b = append(b, p...)
		for len(ts) > 1 && len(b)%4 != 0 {
			b = append(b, 0)
		}
	}
	return b, nil
}

// parseRange parses a literal, a prefix or a range, as its two ends.
func (t datatype) parseRange(s string) (lo, hi []byte, err error) {
	if t.isAddress() && strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		if err != nil || p.Addr().BitLen() != t.size*8 {
			return nil, nil, fmt.Errorf("%q is no prefix of %s", s, t.name)
		}
		lo = p.Masked().Addr().AsSlice()
		return lo, fillBits(lo, p.Bits()), nil
	}
	from, to, ranged := strings.Cut(s, "-")
	if !ranged || t.name == "ether_addr" || t.name == "ifname" || t.symbols() != nil {
		lo, err = t.parse(s)
		return lo, lo, err
	}
	if lo, err = t.parse(from); err != nil {
		return nil, nil, err
	}
	if hi, err = t.parse(to); err != nil {
		return nil, nil, err
	}
	if bytes.Compare(lo, hi) > 0 {
		return nil, nil, fmt.Errorf("range %q ends before it begins", s)
	}
	return lo, hi, nil
}

// fillBits sets all bits of b behind the first n.
func fillBits(b []byte, n int) []byte {
	b = slices.Clone(b)
	for i := range b {
		switch left := n - 8*i; {
		case left <= 0:
			b[i] = 0xff
		case left < 8:
			b[i] |= 0xff >> left
		}
	}
	return b
}

// prefixBits says which prefix the range lo-hi is, if any.
func prefixBits(lo, hi []byte) (bits int, ok bool) {
	for bits = 0; bits <= 8*len(lo); bits++ {
		mask := fillBits(make([]byte, len(lo)), bits)
		fits := true
		for i := range lo {
			fits = fits && lo[i]&mask[i] == 0 && lo[i]|mask[i] == hi[i]
		}
		if fits {
			return bits, true
		}
	}
	return 0, false
}

// formatRange prints a range as nft does.
func (t datatype) formatRange(lo, hi []byte) string {
	if len(lo) < t.size || len(hi) < t.size {
		return fmt.Sprintf("%#x-%#x", lo, hi)
	}
	lo, hi = lo[:t.size], hi[:t.size]
	if bytes.Equal(lo, hi) {
		return t.format(lo)
	}
	if bits, ok := prefixBits(lo, hi); ok && t.isAddress() {
		return fmt.Sprintf("%s/%d", t.format(lo), bits)
	}
	return t.format(lo) + "-" + t.format(hi)
}

// formatParts prints the parts of a key or of a value.
func formatParts(ts []datatype, lo, hi []byte) []string {
	var parts []string
	for _, t := range ts {
		n := t.size
		if len(ts) > 1 {
			n = pad4(n)
		}
		if len(lo) < n || len(hi) < n {
			return append(parts, fmt.Sprintf("%#x", lo))
		}
		parts = append(parts, t.formatRange(lo[:n], hi[:n]))
		lo, hi = lo[n:], hi[n:]
	}
	return parts
}

// words turns the element back into what plans are made of.
func (s set) words(e elem) state.Element {
	out := state.Element{Key: formatParts(s.key, e.lo, e.hi), Comment: e.comment, Keeps: keeping(e.keeps)}
	switch {
	case e.verdict != nil:
		out.Val = []string{e.verdict.String()}
	case s.isMap:
		out.Val = formatParts(s.data, e.val, e.val)
	}
	return out
}

// parseVerdict parses "accept", "jump chain" and so on.
func parseVerdict(s string) (*verdict, error) {
	word, chain, _ := strings.Cut(s, " ")
	for _, v := range verdicts() {
		if v.word != word {
			continue
		}
		if v.chain != (chain != "") || strings.Contains(chain, " ") {
			return nil, fmt.Errorf("verdict %q: want one chain behind jump and goto, nothing behind the others", s)
		}
		return &verdict{code: v.code, chain: chain}, nil
	}
	return nil, fmt.Errorf("%q is no verdict (accept, drop, return, continue, jump, goto)", s)
}

type verdictWord struct {
	word  string
	code  int32
	chain bool
}

func verdicts() []verdictWord {
	return []verdictWord{
		{"accept", 1, false}, // NF_ACCEPT
		{"drop", 0, false},   // NF_DROP
		{"return", unix.NFT_RETURN, false},
		{"continue", unix.NFT_CONTINUE, false},
		{"jump", unix.NFT_JUMP, true},
		{"goto", unix.NFT_GOTO, true},
	}
}

// String prints the verdict as nft does.
func (v verdict) String() string {
	for _, w := range verdicts() {
		if w.code == v.code && w.chain {
			return w.word + " " + v.chain
		}
		if w.code == v.code {
			return w.word
		}
	}
	return fmt.Sprintf("verdict %d", v.code)
}
