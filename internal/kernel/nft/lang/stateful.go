// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"errors"
	"fmt"
)

// limitOver inverts a limit: it matches packets above the rate (NFT_LIMIT_F_INV); countOver does so for connections.
const limitOver, countOver = 1, 1

// compileStateful compiles the stateful statement of an element.
func (s Set) compileStateful(text string) (*Expr, error) {
	if text == "" {
		return nil, nil
	}
	c := &compiler{words: split(text)}
	var err error
	switch c.peek() {
	case "limit":
		err = c.limit()
	case "ct":
		err = c.connlimit()
	default:
		err = fmt.Errorf("%s: an element keeps a limit or a ct count", c.position())
	}
	if err == nil && c.pos < len(c.words) {
		err = fmt.Errorf("%s: one statement is enough", c.position())
	}
	if err == nil && s.Interval {
		err = errors.New("elements of interval sets keep no count")
	}
	if err != nil {
		return nil, &BadRule{Text: text, Err: err}
	}
	return &c.out[0], nil
}

// connlimit compiles "ct count [over] N".
func (c *compiler) connlimit() error {
	c.pos++
	if err := c.expect("count"); err != nil {
		return err
	}
	e := Expr{Name: "connlimit"}
	if c.accept("over") {
		e.Flags = countOver
	}
	n, err := c.number("a number of connections", 32)
	e.Size = uint32(n)
	c.emit(e)
	return err
}

// statefulText returns the text of a stateful expression.
func statefulText(e *Expr) string {
	if e == nil {
		return ""
	}
	if e.Name == "connlimit" && e.Flags == countOver {
		return fmt.Sprintf("ct count over %d", e.Size)
	}
	if e.Name == "connlimit" && e.Flags == 0 {
		return fmt.Sprintf("ct count %d", e.Size)
	}
	if text, ok := limitText(*e); ok && e.Name == "limit" && !e.Unknown {
		return text
	}
	return ForeignRule
}
