// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/state"
)

// Element is a compiled element: a key, or an inclusive range of keys.
type Element struct {
	Key, KeyEnd []byte
	Data        []byte   // of a map
	Verdict     *Verdict // of a verdict map
	Comment     string
	Expr        *Expr // its stateful expression
}

// Verdict is the verdict of a verdict map or a rule.
type Verdict struct {
	Code  int32
	Chain string
}

// SameValue reports whether both elements map to the same value.
func (e Element) SameValue(f Element) bool {
	if statefulText(e.Expr) != statefulText(f.Expr) {
		return false
	}
	if e.Verdict != nil && f.Verdict != nil {
		return *e.Verdict == *f.Verdict
	}
	return e.Verdict == f.Verdict && bytes.Equal(e.Data, f.Data)
}

// CompareElements orders elements by their keys, as the kernel does.
func CompareElements(a, b Element) int {
	if c := bytes.Compare(a.Key, b.Key); c != 0 {
		return c
	}
	return bytes.Compare(a.KeyEnd, b.KeyEnd)
}

// CompileElement converts an element's text into bytes.
func (s Set) CompileElement(in state.Element) (Element, error) {
	e := Element{Comment: in.Comment}
	if len(in.Key) != len(s.Key) {
		return e, fmt.Errorf("element %v: %d parts, the key %q has %d", in.Key, len(in.Key), typesString(s.Key), len(s.Key))
	}
	if len(in.Comment) > 127 {
		return e, fmt.Errorf("element %v: comment of %d bytes, at most 127 fit", in.Key, len(in.Comment))
	}
	for i, t := range s.Key {
		lo, hi, err := t.parseRange(in.Key[i])
		if err != nil {
			return e, fmt.Errorf("element %v: %w", in.Key, err)
		}
		if !s.Interval && !bytes.Equal(lo, hi) {
			return e, fmt.Errorf("element %v: %q is a range, and the set is no interval set", in.Key, in.Key[i])
		}
		e.Key, e.KeyEnd = s.appendPart(e.Key, lo), s.appendPart(e.KeyEnd, hi)
	}
	var err error
	switch {
	case !s.IsMap && len(in.Val) > 0:
		err = fmt.Errorf("value %v in a set", in.Val)
	case s.Verdicts:
		e.Verdict, err = parseVerdict(strings.Join(in.Val, " "))
	case s.IsMap:
		e.Data, err = parseParts(s.Data, in.Val)
	}
	if err == nil {
		e.Expr, err = s.compileStateful(in.Stateful)
	}
	if err != nil {
		return e, fmt.Errorf("element %v: %w", in.Key, err)
	}
	return e, nil
}

// appendPart appends one part of a key; parts of a concatenation are padded.
func (s Set) appendPart(b, part []byte) []byte {
	b = append(b, part...)
	for len(s.Key) > 1 && len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func parseParts(ts []Type, parts []string) ([]byte, error) {
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
func (t Type) parseRange(s string) (lo, hi []byte, err error) {
	if t.isAddress() && strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		if err != nil || p.Addr().BitLen() != t.Size*8 {
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

// fillBits sets all bits of b after the first n.
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

// prefixBits returns the length of the prefix that equals the range lo-hi, if any.
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
func (t Type) formatRange(lo, hi []byte) string {
	if len(lo) < t.Size || len(hi) < t.Size {
		return fmt.Sprintf("%#x-%#x", lo, hi)
	}
	lo, hi = lo[:t.Size], hi[:t.Size]
	if bytes.Equal(lo, hi) {
		return t.format(lo)
	}
	if bits, ok := prefixBits(lo, hi); ok && t.isAddress() {
		return fmt.Sprintf("%s/%d", t.format(lo), bits)
	}
	return t.format(lo) + "-" + t.format(hi)
}

// formatParts prints the parts of a key or of a value.
func formatParts(ts []Type, lo, hi []byte) []string {
	var parts []string
	for _, t := range ts {
		n := t.Size
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

// State converts the element back into a plan's value.
func (s Set) State(e Element) state.Element {
	out := state.Element{Key: formatParts(s.Key, e.Key, e.KeyEnd), Comment: e.Comment, Stateful: statefulText(e.Expr)}
	switch {
	case e.Verdict != nil:
		out.Val = []string{e.Verdict.String()}
	case s.IsMap:
		out.Val = formatParts(s.Data, e.Data, e.Data)
	}
	return out
}

// parseVerdict parses "accept", "jump chain" and so on.
func parseVerdict(s string) (*Verdict, error) {
	word, chain, _ := strings.Cut(s, " ")
	for _, v := range verdicts() {
		if v.word != word {
			continue
		}
		if v.chain != (chain != "") || strings.Contains(chain, " ") {
			return nil, fmt.Errorf("verdict %q: want one chain behind jump and goto, nothing behind the others", s)
		}
		return &Verdict{Code: v.code, Chain: chain}, nil
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
func (v Verdict) String() string {
	for _, w := range verdicts() {
		if w.code == v.Code && w.chain {
			return w.word + " " + v.Chain
		}
		if w.code == v.Code {
			return w.word
		}
	}
	return fmt.Sprintf("verdict %d", v.Code)
}
