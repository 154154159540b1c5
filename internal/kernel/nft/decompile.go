// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"bytes"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// foreignRule is the text of a rule that is not of the subset: it equals no rule of a plan.
const foreignRule = "# a rule that weft does not write"

// reader turns expressions back into words by running them on symbols instead of packets.
type reader struct {
	family byte
	known  protocols
	regs   [16]content
	parts  []part
}

// content is what a register holds from this word on.
type content struct {
	field *field
	part  int // bytes of the field that were loaded
	// mask and xor are set behind a bitwise expression.
	mask, xor []byte
	data      []byte // an immediate
	words     string // the result of a map: the words of the lookup
}

// part is a clause of the rule's text; guard names the protocol that a comparison only makes sure of.
type part struct {
	text   string
	l3, l4 byte
	gone   bool
}

// decompile gives the text of a rule as nft prints it, and foreignRule when it is none of ours.
func decompile(family byte, es []expr) string {
	r := &reader{family: family, known: start(family)}
	for _, e := range es {
		if e.strange || !r.step(e) {
			return foreignRule
		}
	}
	var words []string
	for _, p := range r.parts {
		if !p.gone {
			words = append(words, p.text)
		}
	}
	return strings.Join(words, " ")
}

func (r *reader) say(text string) bool {
	r.parts = append(r.parts, part{text: text})
	return true
}

func (r *reader) step(e expr) bool {
	switch e.op {
	case "meta", "ct", "payload", "fib":
		if e.sreg != 0 && e.op == "payload" {
			return r.storeDSCP(e)
		}
		if e.sreg != 0 {
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
		if e.verdict != nil {
			return r.say(e.verdict.String())
		}
		return r.put(e.dreg, content{data: e.data})
	case "nat":
		return r.nat(e)
	case "masq":
		return r.say(strings.TrimSpace("masquerade " + natFlagText(e.flags)))
	case "reject":
		text, ok := rejectText(r.family, e)
		return ok && r.say(text)
	case "fwd":
		return r.fwd(e)
	case "counter", "notrack":
		return r.say(e.op)
	case "dynset":
		return r.learn(e)
	case "log":
		return r.say(logText(e))
	case "limit":
		text, ok := limitText(e)
		return ok && r.say(text)
	}
	return false
}

func (r *reader) put(at reg, c content) bool {
	if at < word(0) || at > word(15) {
		return false
	}
	r.regs[at.word()] = c
	return true
}

func (r *reader) get(at reg) (content, bool) {
	if at < word(0) || at > word(15) {
		return content{}, false
	}
	return r.regs[at.word()], true
}

func (r *reader) load(e expr) bool {
	f, n, ok := r.known.identify(e)
	if !ok {
		f, ok = r.known.dscpField(e)
	}
	if !ok {
		return false
	}
	return r.put(e.dreg, content{field: &f, part: n})
}

func (r *reader) bitwise(e expr) bool {
	c, ok := r.get(e.sreg)
	if !ok || c.field == nil || c.mask != nil || e.dreg != e.sreg || len(e.data) != len(e.more) {
		return false
	}
	c.mask, c.xor = e.data, e.more
	return r.put(e.dreg, c)
}

// use says that a field of the packet is spoken of, which makes its guards redundant as text.
func (r *reader) use(f *field) string {
	for i, p := range r.parts {
		if p.l3 != 0 && p.l3 == f.l3 || p.l4 != 0 && f.load.op == "payload" && f.load.key == unix.NFT_PAYLOAD_TRANSPORT_HEADER {
			r.parts[i].gone = true
		}
	}
	return f.name
}

// compare reads a comparison; a range that was written as two is joined when its second half comes.
func (r *reader) compare(e expr) bool {
	c, ok := r.get(e.sreg)
	if !ok || c.field == nil {
		return false
	}
	if e.op == "cmp" && e.key == unix.NFT_CMP_GTE {
		c.data = e.data
		return r.put(e.sreg, c)
	}
	defer r.forget()
	op := ""
	if e.key == unix.NFT_CMP_NEQ && e.op == "cmp" || e.key == unix.NFT_RANGE_NEQ && e.op == "range" {
		op = "!= "
	}
	value, whole := "", false
	switch {
	case c.mask != nil:
		return r.compareMasked(c, e, op)
	case e.op == "range":
		value = c.field.typ.formatRange(e.data, e.more)
	case e.key == unix.NFT_CMP_LTE && c.data != nil:
		value = c.field.typ.formatRange(c.data, e.data)
	case e.key != unix.NFT_CMP_EQ && e.key != unix.NFT_CMP_NEQ:
		return false
	default:
		value, whole = c.literal(e.data), len(e.data) == c.field.typ.size
	}
	p := part{text: r.use(c.field) + " " + op + value}
	if before := r.known; whole && op == "" {
		r.known, _ = before.learn(*c.field, e.data)
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
func (c content) literal(b []byte) string {
	t := c.field.typ
	switch {
	case len(b) == t.size:
		return t.format(b)
	case t.name == "ifname":
		return `"` + string(b) + `*"`
	case t.isAddress() && len(b) == c.part:
		lo := append(bytes.Clone(b), make([]byte, t.size-len(b))...)
		return t.formatRange(lo, fillBits(lo, 8*len(b)))
	}
	return "?"
}

func (r *reader) compareMasked(c content, e expr, op string) bool {
	t := c.field.typ
	zero := make([]byte, len(c.mask))
	if e.op != "cmp" || len(c.mask) != t.size || len(e.data) != t.size || !bytes.Equal(c.xor, zero) {
		return false
	}
	name := r.use(c.field)
	if t.isFlags() && t.named(c.mask) && bytes.Equal(e.data, zero) && op != "" {
		return r.say(name + " " + t.formatFlags(c.mask, ","))
	}
	if ones, ok := maskBits(c.mask); ok && t.isAddress() {
		return r.say(name + " " + op + t.formatRange(e.data, fillBits(e.data, ones)))
	}
	if op == "" {
		op = "== "
	}
	return r.say(name + " & " + t.format(c.mask) + " " + op + t.format(e.data))
}

// maskBits counts the ones of a mask that has no holes.
func maskBits(mask []byte) (int, bool) {
	inverse := make([]byte, len(mask))
	for i, b := range mask {
		inverse[i] = ^b
	}
	return prefixBits(make([]byte, len(mask)), inverse)
}

// forget empties the registers: whatever was loaded has been compared.
func (r *reader) forget() { r.regs = [16]content{} }

// concat joins the names of the fields that stand in registers from at on.
func (r *reader) concat(at reg) (string, bool) {
	var loaded []content
	for w := at.word(); w >= 0 && w < len(r.regs); {
		c := r.regs[w]
		f := c.field
		if f == nil || c.part != f.typ.size || c.mask != nil && (len(loaded) == 0 || len(c.mask) != f.typ.size || !bytes.Equal(c.xor, make([]byte, len(c.mask)))) {
			break
		}
		loaded = append(loaded, c)
		w += pad4(f.typ.size) / 4
	}
	names := make([]string, len(loaded))
	for i, c := range loaded {
		if names[i] = r.use(c.field); c.mask != nil {
			names[i] += " & " + c.field.typ.format(c.mask)
		}
	}
	return strings.Join(names, " . "), len(names) > 0
}

func (r *reader) lookup(e expr) bool {
	key, ok := r.concat(e.sreg)
	if !ok {
		return false
	}
	r.forget()
	switch {
	case e.dreg == verdictReg:
		return r.say(key + " vmap @" + e.set)
	case e.dreg != 0:
		return r.put(e.dreg, content{words: key + " map @" + e.set})
	case e.flags&unix.NFT_LOOKUP_F_INV != 0:
		return r.say(key + " != @" + e.set)
	}
	return r.say(key + " @" + e.set)
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
