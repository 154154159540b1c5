// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
)

// Drop is a foreign base chain that drops forwarded packets unless one of its rules accepts them.
type Drop struct {
	Family, Table, Chain string
}

// String prints the chain as nft does.
func (d Drop) String() string { return d.Family + " " + d.Table + " " + d.Chain }

// Drops finds these chains. While the ruleset is unchanged since the last call, it only reads its generation.
func (c *Conn) Drops(ctx context.Context) ([]Drop, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := retryStale(ctx, func() (stale bool, err error) {
		gen, err := c.wire.generation()
		if err != nil || gen == c.known.gen && c.known.drops != nil {
			return false, err
		}
		if gen != c.known.gen {
			c.known.clear()
		}
		found, err := c.reader.readDrops()
		if err != nil {
			return false, err
		}
		after, err := c.wire.generation()
		if err != nil || after != gen {
			return true, err
		}
		c.known.gen, c.known.drops = gen, found
		return false, nil
	})
	return c.known.drops, err
}

func (r *reader) readDrops() ([]Drop, error) {
	found := []Drop{}
	var forward []Drop // those of the iptables programs, which may end in an unconditional rule
	err := r.wire.dump(r.wire.question(unix.NFT_MSG_GETCHAIN, 0, "list chains"), func(family byte, body []byte) {
		table := netlink.String(netlink.Find(body, unix.NFTA_CHAIN_TABLE))
		if family != unix.NFPROTO_IPV4 && family != unix.NFPROTO_IPV6 && family != unix.NFPROTO_INET || owned(table) {
			return
		}
		if ch := decodeChain(family, body); ch.Hook == "forward" && ch.Policy == "drop" {
			found = append(found, Drop{lang.FamilyName(family), table, ch.Name})
		} else if table == "filter" && ch.Name == "FORWARD" && family != unix.NFPROTO_INET {
			forward = append(forward, Drop{lang.FamilyName(family), table, ch.Name})
		}
	})
	for _, d := range forward {
		if err != nil {
			return nil, err
		}
		var drops bool
		if drops, err = r.endsInDrop(d); drops {
			found = append(found, d)
		}
	}
	return found, err
}

// endsInDrop reports whether a chain of iptables has a rule that drops or rejects every packet.
func (r *reader) endsInDrop(d Drop) (drops bool, err error) {
	family, err := lang.ParseFamily(d.Family)
	if err != nil {
		return false, err
	}
	b := r.wire.question(unix.NFT_MSG_GETRULE, family, "list rules of "+d.Chain)
	b.String(unix.NFTA_RULE_TABLE, d.Table)
	b.String(unix.NFTA_RULE_CHAIN, d.Chain)
	err = r.wire.dump(b, func(_ byte, body []byte) {
		of := netlink.String(netlink.Find(body, unix.NFTA_RULE_TABLE)) == d.Table &&
			netlink.String(netlink.Find(body, unix.NFTA_RULE_CHAIN)) == d.Chain
		drops = drops || of && alwaysDrops(netlink.Find(body, unix.NFTA_RULE_EXPRESSIONS))
	})
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return drops, err
}

// alwaysDrops reports whether a rule of iptables drops or rejects without a condition other than a comment.
func alwaysDrops(exprs []byte) bool {
	const name = 1 // NFTA_MATCH_NAME, NFTA_TARGET_NAME
	drops := false
	for _, item := range netlink.Attrs(exprs) {
		data := netlink.Find(item, unix.NFTA_EXPR_DATA)
		switch op := netlink.String(netlink.Find(item, unix.NFTA_EXPR_NAME)); op {
		case "counter":
		case "match":
			if netlink.String(netlink.Find(data, name)) != "comment" {
				return false
			}
		case "immediate":
			verdict := netlink.Find(netlink.Find(data, unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VERDICT)
			code := netlink.Find(verdict, unix.NFTA_VERDICT_CODE)
			drops = len(code) == 4 && netlink.BE32(code) == 0 // NF_DROP
		case "target":
			drops = netlink.String(netlink.Find(data, name)) == "REJECT"
		case "reject":
			drops = true
		default:
			return false
		}
	}
	return drops
}
