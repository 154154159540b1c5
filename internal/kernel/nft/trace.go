// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
)

// TraceTable is the table of a trace, of family inet.
const TraceTable = "weft-trace"

// TraceLeft is the chain of TraceTable that packets meet last, when they leave through an interface. It has no rule: the
// kernel reports its policy.
const TraceLeft = "postrouting"

const (
	tableOwner   = 2    // NFT_TABLE_F_OWNER: the table is deleted with its netlink socket (Linux 5.12)
	beforeOthers = -400 // before connection tracking and the tables raw
	afterOthers  = 400  // what comes there leaves through an interface
)

// Bytes are bytes at a place of a packet.
type Bytes struct {
	// Transport: the place is counted from the transport header, else from the network header.
	Transport bool
	Offset    int
	Value     []byte
}

// Match selects packets of a transport protocol by some of their bytes.
type Match struct {
	Protocol uint8 // IPPROTO_TCP …
	Bytes    []Bytes
}

// ErrNoOwner reports that the kernel has no tables that are deleted with their socket.
var ErrNoOwner = errors.New("this kernel has no nftables tables with an owner (Linux 5.12)")

// Trace makes the kernel report the rules that packets meet which one of the matches selects. The rules belong to the
// connection: the kernel deletes them when it is closed, also when the process is killed. c must be used for nothing
// else.
func (c *Conn) Trace(ctx context.Context, matches []Match) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := newTable(unix.NFPROTO_INET, TraceTable, false)
	b := c.wire.begin(0)
	b.message(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, t.Family, "make table "+t.Label())
	b.String(unix.NFTA_TABLE_NAME, t.Name)
	b.BE32(unix.NFTA_TABLE_FLAGS, tableOwner)
	for _, hook := range []string{"prerouting", "output"} {
		b.putChain(t, lang.Chain{Name: hook, Type: "filter", Hook: hook, Priority: beforeOthers, Policy: "accept"})
		for _, m := range matches {
			b.putRule(t, hook, lang.Rule{Exprs: m.expressions(), Text: "trace"}, 0)
		}
	}
	// Every packet has passed one of those: what leaves is selected already, and its chain costs other packets no rule.
	b.putChain(t, lang.Chain{
		Name: TraceLeft, Type: "filter", Hook: "postrouting", Priority: afterOthers, Policy: "accept",
	})
	_, refused, err := c.wire.commit(b)
	for _, r := range refused {
		if errors.Is(r, unix.EOPNOTSUPP) || errors.Is(r, unix.EINVAL) {
			err = errors.Join(err, ErrNoOwner)
		}
		err = errors.Join(err, r)
	}
	if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return nil
}

// expressions compare the bytes and set the mark of a trace.
func (m Match) expressions() []lang.Expr {
	const register = lang.Register(1)
	out := []lang.Expr{
		{Name: "meta", Dreg: register, Key: unix.NFT_META_L4PROTO},
		{Name: "cmp", Sreg: register, Key: unix.NFT_CMP_EQ, Data: []byte{m.Protocol}},
	}
	for _, p := range m.Bytes {
		base := uint32(unix.NFT_PAYLOAD_NETWORK_HEADER)
		if p.Transport {
			base = unix.NFT_PAYLOAD_TRANSPORT_HEADER
		}
		out = append(out,
			lang.Expr{Name: "payload", Dreg: register, Key: base, Offset: uint32(p.Offset), Size: uint32(len(p.Value))},
			lang.Expr{Name: "cmp", Sreg: register, Key: unix.NFT_CMP_EQ, Data: p.Value})
	}
	return append(out,
		lang.Expr{Name: "immediate", Dreg: register, Data: []byte{1}},
		lang.Expr{Name: "meta", Sreg: register, Key: unix.NFT_META_NFTRACE})
}
