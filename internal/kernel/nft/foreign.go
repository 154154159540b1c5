// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"

	"golang.org/x/sys/unix"
)

// Drop is a base chain of somebody else's that drops what is forwarded unless one of its rules accepts it.
type Drop struct {
	Family, Table, Chain string
}

// String is the chain as nft names it.
func (d Drop) String() string { return d.Family + " " + d.Table + " " + d.Chain }

// Drops finds these chains. While nobody has touched the ruleset since they were last looked for, only its generation is
// asked for.
func (c *Conn) Drops(ctx context.Context) ([]Drop, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := settled(ctx, func() (stale bool, err error) {
		gen, err := c.generation()
		if err != nil || gen == c.gen && c.drops != nil {
			return false, err
		}
		if gen != c.gen {
			c.forget()
		}
		found, err := c.readDrops()
		if err != nil {
			return false, err
		}
		after, err := c.generation()
		if err != nil || after != gen {
			return true, err
		}
		c.gen, c.drops = gen, found
		return false, nil
	})
	return c.drops, err
}

func (c *Conn) readDrops() ([]Drop, error) {
	found := []Drop{}
	err := c.dump(c.question(unix.NFT_MSG_GETCHAIN, 0, "list chains"), func(family byte, body []byte) {
		table := cstr(findAttr(body, unix.NFTA_CHAIN_TABLE))
		if family != unix.NFPROTO_IPV4 && family != unix.NFPROTO_IPV6 && family != unix.NFPROTO_INET || owned(table) {
			return
		}
		if ch := decodeChain(family, body); ch.hook == "forward" && ch.policy == "drop" {
			found = append(found, Drop{familyName(family), table, ch.name})
		}
	})
	return found, err
}
