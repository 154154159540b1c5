// SPDX-License-Identifier: Apache-2.0

package model

import "fmt"

// deepest bounds how far parentheses of an expression nest: what a person wrote nests less, and each level costs stack.
const deepest = 100

// expressionParser reads an expression by descent. After the first error it goes on without harm and remembers that
// error.
type expressionParser struct {
	scan  expressionScanner
	tok   token
	depth int
	err   *Fault
}

func (p *expressionParser) fault() error {
	if p.err == nil {
		return nil
	}
	return p.err
}

func (p *expressionParser) fail(hint, format string, args ...any) {
	if p.err == nil {
		p.err = Faultf(CodeInvalidConf, hint, "selector %q, character %d: %s", p.scan.text, p.tok.at+1,
			fmt.Sprintf(format, args...))
	}
	p.tok = token{kind: tokenEnd, at: p.tok.at}
	p.scan.pos = len(p.scan.text)
}

func (p *expressionParser) next() {
	tok, err := p.scan.next()
	p.tok = tok
	if err != nil {
		p.fail(err.hint, "%s", err.msg)
	}
}

// take goes on behind the sign if it is next.
func (p *expressionParser) take(sign string) bool {
	if p.tok.kind != tokenSign || p.tok.text != sign {
		return false
	}
	p.next()
	return true
}

// word goes on behind the word if it is next.
func (p *expressionParser) word(w string) bool {
	if p.tok.kind != tokenWord || p.tok.text != w {
		return false
	}
	p.next()
	return true
}

func (p *expressionParser) either() condition {
	parts := eitherOf{p.both()}
	for p.take("||") {
		parts = append(parts, p.both())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return parts
}

func (p *expressionParser) both() condition {
	parts := bothOf{p.one()}
	for p.take("&&") {
		parts = append(parts, p.one())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return parts
}

// one reads a condition that is not made of others by && and ||.
func (p *expressionParser) one() condition {
	negated := false
	for p.take("!") {
		negated = !negated
	}
	c := p.plain()
	if negated {
		return opposite{c}
	}
	return c
}

func (p *expressionParser) plain() condition {
	if p.take("(") {
		if p.depth++; p.depth > deepest {
			p.fail("write it with fewer parentheses", "more than %d parentheses are open", deepest)
			return everything{}
		}
		c := p.either()
		p.depth--
		p.want(")")
		return c
	}
	if p.tok.kind != tokenWord {
		p.fail(`write for example 'zone == "a"', 'has(zone)' or 'all()'`, "%s stands where a condition begins", p.tok)
		return everything{}
	}
	label := p.tok.text
	p.next()
	if p.tok.kind == tokenSign && p.tok.text == "(" {
		return p.function(label)
	}
	return p.comparison(label)
}

// function reads what follows the name of a function.
func (p *expressionParser) function(name string) condition {
	p.next()
	switch name {
	case "all":
		p.want(")")
		return everything{}
	case "has":
		label := p.tok.text
		if p.tok.kind != tokenWord {
			p.fail("write for example 'has(zone)'", "%s is no label", p.tok)
		}
		p.next()
		p.want(")")
		return comparison{label: label, how: "has"}
	case "global":
		p.fail("leave it out, or write 'all()'",
			"global() chooses Calico's objects without a namespace, which have no addresses of pools")
	default:
		p.fail("the functions are 'all()' and 'has(label)'", "there is no function %q", name)
	}
	return everything{}
}

func (p *expressionParser) comparison(label string) condition {
	c := comparison{label: label}
	switch {
	case p.take("=="):
		c.how = "=="
	case p.take("!="):
		c.how = "!="
	case p.word("contains"):
		c.how = "contains"
	case p.word("starts"):
		c.how = p.with("starts")
	case p.word("ends"):
		c.how = p.with("ends")
	case p.word("in"):
		return p.set(label, "in")
	case p.word("not"):
		if !p.word("in") {
			p.fail(`write 'not in {"a", "b"}'`, "%s stands behind 'not'", p.tok)
		}
		return p.set(label, "not in")
	default:
		p.fail("after a label: ==, !=, in, not in, contains, starts with, ends with", "%s stands behind the label %q",
			p.tok, label)
	}
	c.values = []string{p.value()}
	return c
}

func (p *expressionParser) with(verb string) string {
	if !p.word("with") {
		p.fail(fmt.Sprintf(`write '%s with "text"'`, verb), "%s stands behind '%s'", p.tok, verb)
	}
	return verb + " with"
}

func (p *expressionParser) value() string {
	v := p.tok.text
	if p.tok.kind != tokenText {
		p.fail("put quotes around the value", "%s is no value", p.tok)
	}
	p.next()
	return v
}

// set reads {"a", "b"}. It may be empty, and may end with a comma.
func (p *expressionParser) set(label, how string) condition {
	c := comparison{label: label, how: how}
	p.want("{")
	for p.tok.kind == tokenText {
		c.values = append(c.values, p.value())
		if !p.take(",") {
			break
		}
	}
	p.want("}")
	return c
}

func (p *expressionParser) want(sign string) {
	if !p.take(sign) {
		p.fail("", "%s stands where %q is missing", p.tok, sign)
	}
}
