// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxLogPrefix is the kernel's maximum length of a prefix.
const maxLogPrefix = 127

// defaultBurst is nft's default.
const defaultBurst = 5

// log compiles "log [prefix TEXT] [group N [snaplen N]]"; TEXT is one quoted word.
func (c *compiler) log() error {
	c.pos++
	e := Expr{Name: "log"}
	if c.accept("prefix") {
		prefix, err := c.quoted()
		if err != nil {
			return err
		}
		e.Prefix = prefix
	}
	if c.accept("group") {
		n, err := c.number("a log group", 16)
		if err != nil {
			return err
		}
		group := uint16(n)
		e.Group = &group
		if c.accept("snaplen") {
			n, err := c.number("a length in bytes", 32)
			if err != nil {
				return err
			}
			e.Size = uint32(n)
		}
	}
	c.emit(e)
	return nil
}

// quoted skips a quoted word.
func (c *compiler) quoted() (string, error) {
	word, begun := strings.CutPrefix(c.peek(), `"`)
	word, ended := strings.CutSuffix(word, `"`)
	if !begun || !ended || word == "" || len(word) > maxLogPrefix || strings.ContainsAny(word, `"\,`) {
		return "", fmt.Errorf("want one word in quotes, of at most %d bytes and without commas, at %s", maxLogPrefix,
			c.position())
	}
	c.pos++
	return word, nil
}

func (c *compiler) number(what string, bits int) (uint64, error) {
	n, err := strconv.ParseUint(c.peek(), 10, bits)
	if err != nil {
		return 0, fmt.Errorf("want %s at %s", what, c.position())
	}
	c.pos++
	return n, nil
}

func logText(e Expr) string {
	text := "log"
	if e.Prefix != "" {
		text += fmt.Sprintf(` prefix "%s"`, e.Prefix)
	}
	if e.Group != nil {
		text += fmt.Sprintf(" group %d", *e.Group)
		if e.Size != 0 {
			text += fmt.Sprintf(" snaplen %d", e.Size)
		}
	}
	return text
}

// rateUnit is a unit of rates, in seconds.
type rateUnit struct {
	word    string
	seconds uint64
}

func rateUnits() []rateUnit {
	return []rateUnit{{"second", 1}, {"minute", 60}, {"hour", 3600}, {"day", 86400}}
}

// limit compiles "limit rate [over] N/second [burst N packets]".
func (c *compiler) limit() error {
	c.pos++
	if err := c.expect("rate"); err != nil {
		return err
	}
	e := Expr{Name: "limit", Burst: defaultBurst}
	if c.accept("over") {
		e.Flags = limitOver
	}
	rate, word, _ := strings.Cut(c.peek(), "/")
	n, err := strconv.ParseUint(rate, 10, 31)
	for _, p := range rateUnits() {
		if p.word == word {
			e.Rate, e.Per = n, p.seconds
		}
	}
	if err != nil || e.Rate == 0 {
		return fmt.Errorf("want a rate as 10/second at %s", c.position())
	}
	c.pos++
	if c.accept("burst") {
		n, err := c.number("a number of packets", 31)
		if err != nil {
			return err
		}
		if err := c.expect("packets"); err != nil {
			return err
		}
		if n == 0 {
			return errors.New("burst 0 packets lets nothing pass")
		}
		e.Burst = uint32(n)
	}
	c.emit(e)
	return nil
}

func limitText(e Expr) (string, bool) {
	over := ""
	if e.Flags == limitOver {
		over = "over "
	} else if e.Flags != 0 {
		return "", false
	}
	if e.Key != 0 {
		return "", false // in bytes
	}
	for _, p := range rateUnits() {
		if p.seconds != e.Per {
			continue
		}
		text := fmt.Sprintf("limit rate %s%d/%s", over, e.Rate, p.word)
		if e.Burst != defaultBurst {
			text += fmt.Sprintf(" burst %d packets", e.Burst)
		}
		return text, true
	}
	return "", false
}
