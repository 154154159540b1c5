// SPDX-License-Identifier: Apache-2.0

package model

import "fmt"

// maxDepth limits the nesting of parentheses: hand-written expressions nest less, and each level uses stack.
const maxDepth = 100

// expressionParser is a recursive descent parser. It keeps the first error; after it, the rest of the text is skipped.
type expressionParser struct {
	scan  expressionScanner
	tok   token
	depth int
	err   *Error
}

func (p *expressionParser) firstError() error {
	if p.err == nil {
		return nil
	}
	return p.err
}

func (p *expressionParser) fail(hint, format string, args ...any) {
	if p.err == nil {
		p.err = Errorf(CodeInvalidConf, hint, "selector %q, character %d: %s", p.scan.text, p.tok.at+1,
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

// acceptSign consumes the next token if it is the sign.
func (p *expressionParser) acceptSign(sign string) bool {
	if p.tok.kind != tokenSign || p.tok.text != sign {
		return false
	}
	p.next()
	return true
}

// acceptWord consumes the next token if it is the word.
func (p *expressionParser) acceptWord(w string) bool {
	if p.tok.kind != tokenWord || p.tok.text != w {
		return false
	}
	p.next()
	return true
}

func (p *expressionParser) parseOr() condition {
	parts := orCondition{p.parseAnd()}
	for p.acceptSign("||") {
		parts = append(parts, p.parseAnd())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return parts
}

func (p *expressionParser) parseAnd() condition {
	parts := andCondition{p.parseUnary()}
	for p.acceptSign("&&") {
		parts = append(parts, p.parseUnary())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return parts
}

// parseUnary parses a condition that is not joined by && or ||.
func (p *expressionParser) parseUnary() condition {
	negated := false
	for p.acceptSign("!") {
		negated = !negated
	}
	c := p.parsePrimary()
	if negated {
		return notCondition{c}
	}
	return c
}

func (p *expressionParser) parsePrimary() condition {
	if p.acceptSign("(") {
		if p.depth++; p.depth > maxDepth {
			p.fail("write it with fewer parentheses", "more than %d parentheses are open", maxDepth)
			return allCondition{}
		}
		c := p.parseOr()
		p.depth--
		p.expectSign(")")
		return c
	}
	if p.tok.kind != tokenWord {
		p.fail(`write for example 'zone == "a"', 'has(zone)' or 'all()'`, "%s instead of a condition", p.tok)
		return allCondition{}
	}
	label := p.tok.text
	p.next()
	if p.tok.kind == tokenSign && p.tok.text == "(" {
		return p.parseFunction(label)
	}
	return p.parseComparison(label)
}

// parseFunction parses what follows the name of a function.
func (p *expressionParser) parseFunction(name string) condition {
	p.next()
	switch name {
	case "all":
		p.expectSign(")")
		return allCondition{}
	case "has":
		label := p.tok.text
		if p.tok.kind != tokenWord {
			p.fail("write for example 'has(zone)'", "%s is not a label", p.tok)
		}
		p.next()
		p.expectSign(")")
		return comparison{label: label, operator: "has"}
	case "global":
		p.fail("remove it, or write 'all()'",
			"global() selects Calico's objects without a namespace, which have no addresses of pools")
	default:
		p.fail("the functions are 'all()' and 'has(label)'", "there is no function %q", name)
	}
	return allCondition{}
}

func (p *expressionParser) parseComparison(label string) condition {
	c := comparison{label: label}
	switch {
	case p.acceptSign("=="):
		c.operator = "=="
	case p.acceptSign("!="):
		c.operator = "!="
	case p.acceptWord("contains"):
		c.operator = "contains"
	case p.acceptWord("startswith"): // Calico needs no space between an operator's words
		c.operator = "starts with"
	case p.acceptWord("endswith"):
		c.operator = "ends with"
	case p.acceptWord("starts"):
		c.operator = p.expectWith("starts")
	case p.acceptWord("ends"):
		c.operator = p.expectWith("ends")
	case p.acceptWord("notin"):
		return p.parseSet(label, "not in")
	case p.acceptWord("in"):
		return p.parseSet(label, "in")
	case p.acceptWord("not"):
		if !p.acceptWord("in") {
			p.fail(`write 'not in {"a", "b"}'`, "%s after 'not'", p.tok)
		}
		return p.parseSet(label, "not in")
	default:
		p.fail("after a label: ==, !=, in, not in, contains, starts with, ends with", "%s after the label %q",
			p.tok, label)
	}
	c.values = []string{p.parseValue()}
	return c
}

func (p *expressionParser) expectWith(verb string) string {
	if !p.acceptWord("with") {
		p.fail(fmt.Sprintf(`write '%s with "text"'`, verb), "%s after '%s'", p.tok, verb)
	}
	return verb + " with"
}

func (p *expressionParser) parseValue() string {
	v := p.tok.text
	if p.tok.kind != tokenText {
		p.fail("put quotation marks around the value", "%s is not a quoted value", p.tok)
	}
	p.next()
	return v
}

// parseSet parses {"a", "b"}. It may be empty, and may end with a comma.
func (p *expressionParser) parseSet(label, how string) condition {
	c := comparison{label: label, operator: how}
	p.expectSign("{")
	for p.tok.kind == tokenText {
		c.values = append(c.values, p.parseValue())
		if !p.acceptSign(",") {
			break
		}
	}
	p.expectSign("}")
	return c
}

func (p *expressionParser) expectSign(sign string) {
	if !p.acceptSign(sign) {
		p.fail("", "%s instead of %q", p.tok, sign)
	}
}
