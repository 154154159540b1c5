// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/state"
)

// BadRule is the error about a rule that cannot be parsed.
type BadRule struct {
	Text string
	Err  error
}

func (r *BadRule) Error() string { return fmt.Sprintf("rule %q: %v", r.Text, r.Err) }

// Unwrap returns the cause.
func (r *BadRule) Unwrap() error { return r.Err }

// compiler compiles one rule to expressions.
type compiler struct {
	family byte
	words  []string
	pos    int
	known  protocols
	out    []Expr
	flows  []state.Flowtable
	sets   func(name string) (Set, bool)
	chains func(name string) bool
	// open is set when the table has sets and chains that are not known here: the kernel checks them.
	open bool
}

// CompileRule compiles the text of one rule of table t.
func (t *Table) CompileRule(text string) ([]Expr, error) {
	c := &compiler{
		family: t.Family, words: split(text), known: start(t.Family), sets: t.Set, chains: t.HasChain, open: t.open,
		flows: t.Flowtables,
	}
	if len(c.words) == 0 {
		return nil, errors.New("rule is empty")
	}
	for c.pos < len(c.words) {
		if err := c.statement(); err != nil {
			return nil, &BadRule{Text: text, Err: err}
		}
	}
	return c.out, nil
}

// split splits a rule into words; a list with commas is one word, whatever its spaces.
func split(text string) []string {
	var words []string
	for _, w := range strings.Fields(text) {
		if n := len(words) - 1; n >= 0 && (strings.HasSuffix(words[n], ",") || strings.HasPrefix(w, ",")) {
			words[n] += w
			continue
		}
		words = append(words, w)
	}
	return words
}

func (c *compiler) peek() string {
	if c.pos < len(c.words) {
		return c.words[c.pos]
	}
	return ""
}

func (c *compiler) next() string {
	w := c.peek()
	c.pos++
	return w
}

// accept skips the next word if it is w.
func (c *compiler) accept(w string) bool {
	if c.peek() != w {
		return false
	}
	c.pos++
	return true
}

// expect skips the next word, which must be w.
func (c *compiler) expect(w string) error {
	if c.accept(w) {
		return nil
	}
	return fmt.Errorf("want %q at %s", w, c.position())
}

// position describes the position of the next word for an error.
func (c *compiler) position() string {
	if c.pos >= len(c.words) {
		return "the end"
	}
	return fmt.Sprintf("word %d, %q", c.pos+1, c.words[c.pos])
}

func (c *compiler) emit(e ...Expr) { c.out = append(c.out, e...) }

// statement compiles the next statement or match.
func (c *compiler) statement() error {
	switch w := c.peek(); w {
	case "accept", "drop", "return", "continue", "jump", "goto":
		return c.verdict()
	case "counter", "notrack":
		c.pos++
		c.emit(Expr{Name: w})
		return nil
	case "log":
		return c.log()
	case "limit":
		return c.limit()
	case "masquerade":
		c.pos++
		flags, err := c.natFlags()
		c.emit(Expr{Name: "masq", Flags: flags})
		return err
	case "dnat", "snat":
		return c.nat()
	case "reject":
		return c.reject()
	case "fwd":
		return c.fwd()
	case "flow":
		return c.flow()
	case "ip", "ip6":
		if c.pos+2 < len(c.words) && c.words[c.pos+1] == "dscp" && c.words[c.pos+2] == "set" {
			return c.dscp()
		}
	case "update", "delete":
		return c.dynset()
	case "meta", "ct":
		if c.pos+2 < len(c.words) && c.words[c.pos+1] == "mark" && c.words[c.pos+2] == "set" {
			return c.setMark()
		}
	}
	return c.match()
}

func (c *compiler) verdict() error {
	w := c.next()
	if w == "jump" || w == "goto" {
		if !c.open && !c.chains(c.peek()) || checkName(c.peek()) != nil {
			return fmt.Errorf("no chain %q in this table, at %s", c.peek(), c.position())
		}
		w += " " + c.next()
	}
	v, err := parseVerdict(w)
	c.emit(Expr{Name: "immediate", Dreg: verdictReg, Verdict: v})
	return err
}

// field skips the words of a field, without compiling it.
func (c *compiler) field() (field, error) {
	for n := 3; n > 0; n-- {
		if c.pos+n > len(c.words) {
			continue
		}
		if f, ok := fieldNamed(strings.Join(c.words[c.pos:c.pos+n], " ")); ok {
			c.pos += n
			return f, nil
		}
	}
	return field{}, fmt.Errorf("%s is no field or statement that is understood", c.position())
}

// key compiles the loads of a field or a concatenation of fields into registers from first on. All fields of a
// concatenation except the first may have a mask.
func (c *compiler) key(first int) ([]field, error) {
	var fs []field
	masks := map[int][]byte{}
	for {
		f, err := c.field()
		if err != nil {
			return nil, err
		}
		if err := c.requireProtocols(f); err != nil {
			return nil, err
		}
		fs = append(fs, f)
		if len(fs) > 1 && c.accept("&") {
			mask, err := f.typ.parse(c.next())
			if err != nil {
				return nil, fmt.Errorf("mask: %w", err)
			}
			masks[len(fs)-1] = mask
		}
		if !c.accept(".") {
			break
		}
	}
	for i, f := range fs {
		load := f.load
		load.Dreg = word(first)
		c.emit(load)
		if mask := masks[i]; mask != nil {
			c.emit(bitwise(word(first), mask, make([]byte, len(mask))))
		}
		first += pad4(f.typ.Size) / 4
	}
	if first > 16 {
		return nil, errors.New("the concatenation is longer than 64 bytes")
	}
	return fs, nil
}

// requireProtocols adds matches that the packet is of the protocols that f belongs to.
func (c *compiler) requireProtocols(f field) error {
	if f.l3 != 0 && f.l3 != c.known.l3 {
		if c.known.l3 != 0 {
			return fmt.Errorf("%q never occurs here: the packet is of the other family", f.name)
		}
		g, value := protocolGuard(c.family, f.l3)
		c.emitProtocolGuard(g, value)
	}
	if f.l4 != 0 && f.l4 != c.known.l4 {
		if c.known.l4 != 0 {
			return fmt.Errorf("%q never occurs here: the packet is of another protocol", f.name)
		}
		g, _ := fieldNamed("meta l4proto")
		c.emitProtocolGuard(g, []byte{f.l4})
	}
	return nil
}

func (c *compiler) emitProtocolGuard(g field, value []byte) {
	load := g.load
	load.Dreg = word(0)
	c.emit(load, Expr{Name: "cmp", Sreg: word(0), Key: unix.NFT_CMP_EQ, Data: value})
	c.known = c.known.refine(g, value)
}

// lookup checks that the set's key consists of the fields.
func (c *compiler) lookup(fs []field, wantMap bool) (Set, error) {
	name, ok := strings.CutPrefix(c.peek(), "@")
	if !ok {
		return Set{}, fmt.Errorf("want @ and a set's name at %s", c.position())
	}
	s, ok := c.sets(name)
	if !ok && c.open && checkName(name) == nil {
		c.pos++
		return Set{Name: name, IsMap: wantMap, Verdicts: wantMap}, nil
	}
	if !ok {
		return s, fmt.Errorf("no set %q in this table, at %s", name, c.position())
	}
	if s.IsMap != wantMap {
		return s, fmt.Errorf("%s: sets are looked up plainly, maps by map and vmap", c.position())
	}
	fits := len(fs) == len(s.Key)
	var got []Type
	for i, f := range fs {
		got = append(got, f.typ)
		fits = fits && f.typ.Size == s.Key[i].Size && f.typ.name == s.Key[i].name
	}
	if !fits {
		return s, fmt.Errorf("%s: the key is %s, the set holds %s", c.position(), typesString(got), typesString(s.Key))
	}
	c.pos++
	return s, nil
}
