// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"strings"
)

// Expression is a condition on labels in Calico's words:
//
//	all()   has(k)   k == "v"   k != "v"   k in {"a", "b"}   k not in {"a"}
//	k contains "v"   k starts with "v"   k ends with "v"   !…   … && …   … || …   (…)
//
// A label that is missing has no value: != and not in are true of it, all other comparisons false. The zero value and
// the empty text are true of everything.
type Expression struct {
	text string
	root condition
}

// condition is a part of an expression.
type condition interface {
	matches(labels map[string]string) bool
}

// ParseExpression reads an expression. An error says where it cannot be read.
func ParseExpression(text string) (Expression, error) {
	p := expressionParser{scan: expressionScanner{text: text}}
	p.next()
	if p.tok.kind == tokenEnd {
		return Expression{text: text}, p.fault()
	}
	root := p.either()
	if p.err == nil && p.tok.kind != tokenEnd {
		p.fail(`join conditions by "&&" or "||"`, "%s is too much", p.tok)
	}
	if err := p.fault(); err != nil {
		return Expression{text: text}, err
	}
	return Expression{text: text, root: root}, nil
}

// Matches tells whether the condition is true of the labels.
func (e Expression) Matches(labels map[string]string) bool {
	return e.root == nil || e.root.matches(labels)
}

// String is the text that the expression was read from.
func (e Expression) String() string { return e.text }

// comparison compares one label with values; it says how in the words of the expression.
type comparison struct {
	label, how string
	values     []string
}

func (c comparison) matches(labels map[string]string) bool {
	have, is := labels[c.label]
	switch c.how {
	case "has":
		return is
	case "==", "in":
		return is && slices.Contains(c.values, have)
	case "!=", "not in":
		return !is || !slices.Contains(c.values, have)
	case "contains":
		return is && strings.Contains(have, c.values[0])
	case "starts with":
		return is && strings.HasPrefix(have, c.values[0])
	default: // ends with
		return is && strings.HasSuffix(have, c.values[0])
	}
}

// everything is all().
type everything struct{}

func (everything) matches(map[string]string) bool { return true }

// opposite is !….
type opposite struct{ of condition }

func (o opposite) matches(labels map[string]string) bool { return !o.of.matches(labels) }

// eitherOf is … || …, bothOf … && …; each has two parts or more.
type (
	eitherOf []condition
	bothOf   []condition
)

func (e eitherOf) matches(labels map[string]string) bool {
	return slices.ContainsFunc(e, func(c condition) bool { return c.matches(labels) })
}

func (b bothOf) matches(labels map[string]string) bool {
	return !slices.ContainsFunc(b, func(c condition) bool { return !c.matches(labels) })
}
