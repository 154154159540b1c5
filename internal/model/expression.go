// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"strings"
)

// Expression is a selector in Calico's syntax:
//
//	all()   has(k)   k == "v"   k != "v"   k in {"a", "b"}   k not in {"a"}
//	k contains "v"   k starts with "v"   k ends with "v"   !…   … && …   … || …   (…)
//
// A missing label has no value: != and not in match it, all other comparisons do not. The zero value and the empty text
// match everything.
type Expression struct {
	text string
	root condition
}

// LabelView is how an expression sees the labels of an object.
type LabelView interface {
	// Label returns the value of a label, and whether the object has it.
	Label(key string) (string, bool)
	// All is the value of all(): true, unless the expression is about something that the object may be outside of.
	All() bool
}

// Labels is the view of an object's own labels.
type Labels map[string]string

func (m Labels) Label(key string) (string, bool) {
	v, is := m[key]
	return v, is
}

func (Labels) All() bool { return true }

// condition is a part of an expression.
type condition interface {
	matches(labels LabelView) bool
	labels() []string
}

// ParseExpression parses an expression. The error has the position of the first invalid token.
func ParseExpression(text string) (Expression, error) {
	p := expressionParser{scan: expressionScanner{text: text}}
	p.next()
	if p.tok.kind == tokenEnd {
		return Expression{text: text}, p.firstError()
	}
	root := p.parseOr()
	if p.err == nil && p.tok.kind != tokenEnd {
		p.fail(`join conditions with "&&" or "||"`, "unexpected %s", p.tok)
	}
	if err := p.firstError(); err != nil {
		return Expression{text: text}, err
	}
	return Expression{text: text, root: root}, nil
}

// Matches reports whether the expression matches the labels.
func (e Expression) Matches(labels map[string]string) bool { return e.MatchesView(Labels(labels)) }

// MatchesView reports whether the expression matches an object that is seen in another way than by its own labels.
func (e Expression) MatchesView(labels LabelView) bool {
	return e.root == nil && labels.All() || e.root != nil && e.root.matches(labels)
}

// Empty reports whether the expression has no condition.
func (e Expression) Empty() bool { return e.root == nil }

// Labels returns the labels that the expression compares, sorted.
func (e Expression) Labels() []string {
	if e.root == nil {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(e.root.labels())))
}

// String returns the text that the expression was parsed from.
func (e Expression) String() string { return e.text }

// comparison compares one label with values; the operator is as in the expression's text.
type comparison struct {
	label, operator string
	values          []string
}

func (c comparison) matches(labels LabelView) bool {
	have, is := labels.Label(c.label)
	switch c.operator {
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

func (c comparison) labels() []string { return []string{c.label} }

// allCondition is all().
type allCondition struct{}

func (allCondition) matches(labels LabelView) bool { return labels.All() }

func (allCondition) labels() []string { return nil }

// notCondition is !….
type notCondition struct{ of condition }

func (n notCondition) matches(labels LabelView) bool { return !n.of.matches(labels) }

func (n notCondition) labels() []string { return n.of.labels() }

// orCondition is … || …, andCondition … && …; each has two parts or more.
type (
	orCondition  []condition
	andCondition []condition
)

func (o orCondition) matches(labels LabelView) bool {
	return slices.ContainsFunc(o, func(c condition) bool { return c.matches(labels) })
}

func (a andCondition) matches(labels LabelView) bool {
	return !slices.ContainsFunc(a, func(c condition) bool { return !c.matches(labels) })
}

func (o orCondition) labels() []string { return labelsOf(o) }

func (a andCondition) labels() []string { return labelsOf(a) }

func labelsOf(all []condition) (out []string) {
	for _, c := range all {
		out = append(out, c.labels()...)
	}
	return out
}
