// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"fmt"
)

// limitOver turns a limit round: it matches what is over the rate (NFT_LIMIT_F_INV); so does the flag of a count of connections.
const limitOver, countOver = 1, 1

// compileKeeping compiles the statement that an element keeps for itself.
func (s set) compileKeeping(text string) (*expr, error) {
	if text == "" {
		return nil, nil
	}
	c := &compiler{words: split(text)}
	var err error
	switch c.peek() {
	case "limit":
		err = c.limit()
	case "ct":
		err = c.count()
	default:
		err = fmt.Errorf("%s: an element keeps a limit or a ct count", c.here())
	}
	if err == nil && c.pos < len(c.words) {
		err = fmt.Errorf("%s: one statement is enough", c.here())
	}
	if err == nil && s.interval {
		err = errors.New("elements of interval sets keep no count")
	}
	if err != nil {
		return nil, &BadRule{Text: text, Err: err}
	}
	return &c.out[0], nil
}

// count compiles "ct count [over] N".
func (c *compiler) count() error {
	c.pos++
	if err := c.want("count"); err != nil {
		return err
	}
	e := expr{op: "connlimit"}
	if c.accept("over") {
		e.flags = countOver
	}
	n, err := c.number("a number of connections", 32)
	e.size = uint32(n)
	c.emit(e)
	return err
}

// keeping is the text of what an element keeps.
func keeping(e *expr) string {
	if e == nil {
		return ""
	}
	if e.op == "connlimit" && e.flags == countOver {
		return fmt.Sprintf("ct count over %d", e.size)
	}
	if e.op == "connlimit" && e.flags == 0 {
		return fmt.Sprintf("ct count %d", e.size)
	}
	if text, ok := limitText(*e); ok && e.op == "limit" && !e.strange {
		return text
	}
	return foreignRule
}
