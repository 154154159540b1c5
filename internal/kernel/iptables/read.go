// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// Rule is a rule as iptables-save prints it.
type Rule struct {
	Text  string
	Words []string
}

// Chain is a chain with its rules.
type Chain struct {
	Name   string
	Policy string // ACCEPT or DROP, of a built-in chain
	Rules  []Rule
}

// Drops reports whether the chain drops every packet that none of its rules accepts.
func (c *Chain) Drops() bool {
	if c == nil {
		return false
	}
	if c.Policy == "DROP" {
		return true
	}
	for _, r := range c.Rules {
		words := slices.Clone(r.Words)
		for i := 0; i+3 < len(words); i++ {
			if words[i] == "-m" && words[i+1] == "comment" && words[i+2] == "--comment" {
				words = slices.Delete(words, i, i+4)
			}
		}
		if len(words) > 1 && words[0] == "-j" && (words[1] == "DROP" || words[1] == "REJECT") {
			return true
		}
	}
	return false
}

// Table is the output of iptables-save for one table.
type Table struct {
	Chains []*Chain
}

// Chain returns a chain by its name, nil when there is none.
func (t *Table) Chain(name string) *Chain {
	for _, c := range t.Chains {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func (c *Chain) find(words []string) int {
	if c == nil {
		return -1
	}
	return slices.IndexFunc(c.Rules, func(r Rule) bool { return slices.Equal(r.Words, words) })
}

// Save reads a table. A missing one is empty.
func (c *Conn) Save(ctx context.Context, t state.IPTables) (*Table, error) {
	out, err := c.run(ctx, "", c.program(t, "-save"), "-t", t.Table)
	if err != nil {
		return nil, err
	}
	table, err := parse(out)
	if err != nil {
		return nil, fmt.Errorf("%s-save: %w", t.Program(), err)
	}
	return table, nil
}

// parse parses the output of iptables-save for one table.
func parse(out []byte) (*Table, error) {
	table := &Table{}
	var chain *Chain // that of the last rule, usually the next one's too
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20) // a comment alone can have 256 characters, a rule many matches
	for lines.Scan() {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, ":"); ok {
			name, rest, _ := strings.Cut(name, " ")
			if table.Chain(name) == nil {
				policy, _, _ := strings.Cut(rest, " ")
				table.Chains = append(table.Chains, &Chain{Name: name, Policy: policy})
			}
			continue
		}
		if i := strings.Index(line, "-A "); strings.HasPrefix(line, "[") && i > 0 {
			line = line[i:] // counters
		}
		rest, ok := strings.CutPrefix(line, "-A ")
		if !ok {
			continue // a comment, the table's name, COMMIT
		}
		name, text, _ := strings.Cut(rest, " ")
		words, err := Words(text)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		if chain == nil || chain.Name != name {
			chain = table.Chain(name)
		}
		if chain == nil {
			return nil, fmt.Errorf("%q: no chain %s", line, name)
		}
		chain.Rules = append(chain.Rules, Rule{Text: text, Words: words})
	}
	return table, lines.Err()
}
