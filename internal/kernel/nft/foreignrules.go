// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
)

// Place is a chain, whichever program made it.
type Place struct {
	Family, Table, Chain string
}

// OtherRule is a rule of another program: where it is, the comment that nft or iptables-nft added, and the parts of its
// text that are understood.
type OtherRule struct {
	Place
	Handle  uint64
	Comment string
	Text    string
}

// Places lists all chains of the namespace.
func (c *Conn) Places(ctx context.Context) ([]Place, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Place
	err := retryStale(ctx, func() (bool, error) {
		out = nil
		return false, c.wire.dump(c.wire.question(unix.NFT_MSG_GETCHAIN, 0, "list chains"), func(family byte, body []byte) {
			out = append(out, Place{
				lang.FamilyName(family), netlink.String(netlink.Find(body, unix.NFTA_CHAIN_TABLE)),
				netlink.String(netlink.Find(body, unix.NFTA_CHAIN_NAME)),
			})
		})
	})
	return out, err
}

// RulesOf returns the rules of a chain, none when there is no such chain.
func (c *Conn) RulesOf(ctx context.Context, p Place) ([]OtherRule, error) {
	family, err := lang.ParseFamily(p.Family)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []OtherRule
	err = retryStale(ctx, func() (bool, error) {
		out = nil
		b := c.wire.question(unix.NFT_MSG_GETRULE, family, "list rules of "+p.Chain)
		b.String(unix.NFTA_RULE_TABLE, p.Table)
		b.String(unix.NFTA_RULE_CHAIN, p.Chain)
		err := c.wire.dump(b, func(_ byte, body []byte) {
			if netlink.String(netlink.Find(body, unix.NFTA_RULE_TABLE)) != p.Table ||
				netlink.String(netlink.Find(body, unix.NFTA_RULE_CHAIN)) != p.Chain {
				return
			}
			r := decodeRule(family, body)
			out = append(out, OtherRule{Place: p, Handle: r.Handle, Comment: r.Comment, Text: r.Text})
		})
		if errors.Is(err, unix.ENOENT) {
			err = nil
		}
		return false, err
	})
	return out, err
}

// Delete deletes rules and then chains, with their rules, as one transaction. If anything is missing, or other rules
// still jump to a chain, the kernel refuses all of it; the error wraps the kernel's number.
func (c *Conn) Delete(ctx context.Context, rules []OtherRule, chains []Place) error {
	if err := ctx.Err(); err != nil || len(rules)+len(chains) == 0 {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.wire.begin(0)
	for _, r := range rules {
		t, err := r.table()
		if err != nil {
			return err
		}
		b.dropRule(t, r.Chain, r.Handle)
	}
	for _, drop := range []func(*table, string){
		func(t *table, name string) { b.dropRule(t, name, 0) }, // chains may jump to each other
		func(t *table, name string) { b.dropChain(t, name) },
	} {
		for _, p := range chains {
			t, err := p.table()
			if err != nil {
				return err
			}
			drop(t, p.Chain)
		}
	}
	gen, refused, err := c.wire.commit(b)
	for _, r := range refused {
		err = errors.Join(err, r)
	}
	c.known.followed(gen)
	return err
}

func (p Place) table() (*table, error) {
	family, err := lang.ParseFamily(p.Family)
	return newTable(family, p.Table, false), err
}
