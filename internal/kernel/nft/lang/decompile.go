// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"bytes"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ForeignRule is the text of a rule outside the subset: it equals no rule of a plan.
const ForeignRule = "# a rule that weft does not write"

// decompiler converts expressions back into text by running them on symbols instead of packets.
type decompiler struct {
	family byte
	known  protocols
	regs   [16]registerValue
	parts  []clause
}

// registerValue is the content of a register that begins at this word.
type registerValue struct {
	field *field
	part  int // bytes of the field that were loaded
	// mask and xor are set after a bitwise expression.
	mask, xor []byte
	data      []byte // an immediate
	words     string // the result of a map: the words of the lookup
}

// clause is a clause of the rule's text; guard names the protocol that a comparison only ensures.
type clause struct {
	text    string
	l3, l4  byte
	implied bool
}

// Decompile returns the text of a rule as nft prints it, and ForeignRule when it is not in the subset.
func Decompile(family byte, es []Expr) string {
	r := &decompiler{family: family, known: start(family)}
	for _, e := range es {
		if e.Unknown || !r.step(e) {
			return ForeignRule
		}
	}
	var words []string
	for _, p := range r.parts {
		if !p.implied {
			words = append(words, p.text)
		}
	}
	return strings.Join(words, " ")
}

// DecompileKnown returns the clauses of a rule outside the subset that are in it: the rule matches no packet that one of
// them does not match.
func DecompileKnown(family byte, es []Expr) string {
	r := &decompiler{family: family, known: start(family)}
	for _, e := range es {
		if e.Verdict != nil || e.Unknown || !r.step(e) {
			r.clearRegisters()
		}
	}
	var words []string
	for _, p := range r.parts {
		if !p.implied {
			words = append(words, p.text)
		}
	}
	return strings.Join(words, " ")
}

func (r *decompiler) emit(text string) bool {
	r.parts = append(r.parts, clause{text: text})
	return true
}

func (r *decompiler) step(e Expr) bool {
	switch e.Name {
	case "meta", "ct", "payload", "fib":
		if e.Sreg != 0 && e.Name == "payload" {
			return r.storeDSCP(e)
		}
		if e.Sreg != 0 {
			return r.store(e)
		}
		return r.load(e)
	case "bitwise":
		return r.bitwise(e)
	case "cmp", "range":
		return r.compare(e)
	case "lookup":
		return r.lookup(e)
	case "immediate":
		if e.Verdict != nil {
			return r.emit(e.Verdict.String())
		}
		return r.setRegister(e.Dreg, registerValue{data: e.Data})
	case "nat":
		return r.nat(e)
	case "masq":
		return r.emit(strings.TrimSpace("masquerade " + natFlagText(e.Flags)))
	case "reject":
		text, ok := rejectText(r.family, e)
		return ok && r.emit(text)
	case "fwd":
		return r.fwd(e)
	case "counter", "notrack":
		return r.emit(e.Name)
	case "flow_offload":
		return r.emit("flow add @" + e.Set)
	case "dynset":
		return r.dynset(e)
	case "log":
		return r.emit(logText(e))
	case "limit":
		text, ok := limitText(e)
		return ok && r.emit(text)
	}
	return false
}

func (r *decompiler) setRegister(at Register, c registerValue) bool {
	if at < word(0) || at > word(15) {
		return false
	}
	r.regs[at.word()] = c
	return true
}

func (r *decompiler) register(at Register) (registerValue, bool) {
	if at < word(0) || at > word(15) {
		return registerValue{}, false
	}
	return r.regs[at.word()], true
}

func (r *decompiler) load(e Expr) bool {
	f, n, ok := r.known.identify(e)
	if !ok {
		f, ok = r.known.dscpField(e)
	}
	if !ok {
		return false
	}
	return r.setRegister(e.Dreg, registerValue{field: &f, part: n})
}

func (r *decompiler) bitwise(e Expr) bool {
	c, ok := r.register(e.Sreg)
	if !ok || c.field == nil || c.mask != nil || e.Dreg != e.Sreg || len(e.Data) != len(e.More) {
		return false
	}
	c.mask, c.xor = e.Data, e.More
	return r.setRegister(e.Dreg, c)
}

// mention records that the text refers to a field of the packet, which makes its guards redundant as text.
func (r *decompiler) mention(f *field) string {
	for i, p := range r.parts {
		if p.l3 != 0 && p.l3 == f.l3 || p.l4 != 0 && f.load.Name == "payload" &&
			f.load.Key == unix.NFT_PAYLOAD_TRANSPORT_HEADER {
			r.parts[i].implied = true
		}
	}
	return f.name
}

// compare decompiles a comparison; a range that was written as two is joined at its second half.
func (r *decompiler) compare(e Expr) bool {
	c, ok := r.register(e.Sreg)
	if !ok || c.field == nil {
		return false
	}
	if e.Name == "cmp" && e.Key == unix.NFT_CMP_GTE {
		c.data = e.Data
		return r.setRegister(e.Sreg, c)
	}
	defer r.clearRegisters()
	op := ""
	if e.Key == unix.NFT_CMP_NEQ && e.Name == "cmp" || e.Key == unix.NFT_RANGE_NEQ && e.Name == "range" {
		op = "!= "
	}
	value, whole := "", false
	switch {
	case c.mask != nil:
		return r.compareMasked(c, e, op)
	case e.Name == "range":
		value = c.field.typ.formatRange(e.Data, e.More)
	case e.Key == unix.NFT_CMP_LTE && c.data != nil:
		value = c.field.typ.formatRange(c.data, e.Data)
	case e.Key != unix.NFT_CMP_EQ && e.Key != unix.NFT_CMP_NEQ:
		return false
	default:
		value, whole = c.literal(e.Data), len(e.Data) == c.field.typ.Size
	}
	p := clause{text: r.mention(c.field) + " " + op + value}
	if before := r.known; whole && op == "" {
		r.known = before.refine(*c.field, e.Data)
		if r.known.l3 != before.l3 {
			p.l3 = r.known.l3
		}
		if r.known.l4 != before.l4 {
			p.l4 = r.known.l4
		}
	}
	r.parts = append(r.parts, p)
	return true
}

// literal prints a value that may be compared in part: a prefix, or the beginning of an interface's name.
func (c registerValue) literal(b []byte) string {
	t := c.field.typ
	switch {
	case len(b) == t.Size:
		return t.format(b)
	case t.name == "ifname":
		return `"` + string(b) + `*"`
	case t.isAddress() && len(b) == c.part:
		lo := append(bytes.Clone(b), make([]byte, t.Size-len(b))...)
		return t.formatRange(lo, fillBits(lo, 8*len(b)))
	}
	return "?"
}

func (r *decompiler) compareMasked(c registerValue, e Expr, op string) bool {
	t := c.field.typ
	zero := make([]byte, len(c.mask))
	if e.Name != "cmp" || len(c.mask) != t.Size || len(e.Data) != t.Size || !bytes.Equal(c.xor, zero) {
		return false
	}
	name := r.mention(c.field)
	if t.isFlags() && t.named(c.mask) && bytes.Equal(e.Data, zero) && op != "" {
		return r.emit(name + " " + t.formatFlags(c.mask, ","))
	}
	if ones, ok := maskBits(c.mask); ok && t.isAddress() {
		return r.emit(name + " " + op + t.formatRange(e.Data, fillBits(e.Data, ones)))
	}
	if op == "" {
		op = "== "
	}
	return r.emit(name + " & " + t.format(c.mask) + " " + op + t.format(e.Data))
}

// maskBits counts the ones of a contiguous mask.
func maskBits(mask []byte) (int, bool) {
	inverse := make([]byte, len(mask))
	for i, b := range mask {
		inverse[i] = ^b
	}
	return prefixBits(make([]byte, len(mask)), inverse)
}

// clearRegisters empties the registers after a comparison.
func (r *decompiler) clearRegisters() { r.regs = [16]registerValue{} }

// concatenation joins the names of the fields in registers from at on.
func (r *decompiler) concatenation(at Register) (string, bool) {
	var loaded []registerValue
	for w := at.word(); w >= 0 && w < len(r.regs); {
		c := r.regs[w]
		f := c.field
		if f == nil || c.part != f.typ.Size || c.mask != nil &&
			(len(loaded) == 0 || len(c.mask) != f.typ.Size || !bytes.Equal(c.xor, make([]byte, len(c.mask)))) {
			break
		}
		loaded = append(loaded, c)
		w += pad4(f.typ.Size) / 4
	}
	names := make([]string, len(loaded))
	for i, c := range loaded {
		if names[i] = r.mention(c.field); c.mask != nil {
			names[i] += " & " + c.field.typ.format(c.mask)
		}
	}
	return strings.Join(names, " . "), len(names) > 0
}

func (r *decompiler) lookup(e Expr) bool {
	key, ok := r.concatenation(e.Sreg)
	if !ok {
		return false
	}
	r.clearRegisters()
	switch {
	case e.Dreg == verdictReg:
		return r.emit(key + " vmap @" + e.Set)
	case e.Dreg != 0:
		return r.setRegister(e.Dreg, registerValue{words: key + " map @" + e.Set})
	case e.Flags&unix.NFT_LOOKUP_F_INV != 0:
		return r.emit(key + " != @" + e.Set)
	}
	return r.emit(key + " @" + e.Set)
}

// natFlagText lists the flags of an address translation in nft's order.
func natFlagText(flags uint32) string {
	var words []string
	for _, f := range natFlags() {
		if flags&f.bit != 0 {
			words = append(words, f.word)
		}
	}
	return strings.Join(slices.Clip(words), ",")
}
