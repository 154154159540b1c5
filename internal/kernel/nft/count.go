// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
)

// Count is the value of a rule's counter. Rules with the same comment are counted together.
type Count struct {
	Comment        string
	Packets, Bytes uint64
}

// Counts reads the counters of the rules of a table that have a comment, in the order of the rules. A missing table has
// none.
func (c *Conn) Counts(ctx context.Context, family, name string) ([]Count, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n, err := lang.ParseFamily(family)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Count
	err = retryStale(ctx, func() (bool, error) {
		out = nil
		at := map[string]int{}
		b := c.wire.question(unix.NFT_MSG_GETRULE, n, "read counters of "+family+" "+name)
		b.String(unix.NFTA_RULE_TABLE, name)
		return false, c.wire.dump(b, func(_ byte, body []byte) {
			comment := commentIn(netlink.Find(body, unix.NFTA_RULE_USERDATA))
			packets, bytes, counts := counterIn(netlink.Find(body, unix.NFTA_RULE_EXPRESSIONS))
			if comment == "" || !counts || netlink.String(netlink.Find(body, unix.NFTA_RULE_TABLE)) != name {
				return
			}
			i, known := at[comment]
			if !known {
				i, at[comment] = len(out), len(out)
				out = append(out, Count{Comment: comment})
			}
			out[i].Packets += packets
			out[i].Bytes += bytes
		})
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return out, err
}

// counterIn finds the counter in a rule's expressions.
func counterIn(exprs []byte) (packets, bytes uint64, ok bool) {
	for _, item := range netlink.Attrs(exprs) {
		if netlink.String(netlink.Find(item, unix.NFTA_EXPR_NAME)) != "counter" {
			continue
		}
		data := netlink.Find(item, unix.NFTA_EXPR_DATA)
		return netlink.BE64(netlink.Find(data, unix.NFTA_COUNTER_PACKETS)),
			netlink.BE64(netlink.Find(data, unix.NFTA_COUNTER_BYTES)), true
	}
	return 0, 0, false
}
