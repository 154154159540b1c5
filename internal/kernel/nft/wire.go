// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
)

// nested is the flag for attributes that contain others.
const nested = unix.NLA_F_NESTED

// batch is a sequence of nf_tables messages that are sent in one write.
type batch struct {
	netlink.Batch
	notes []string // what each message does, for errors
}

// message begins a message of nf_tables; its attributes follow until the next message or the end.
func (b *batch) message(typ int, flags uint16, family byte, note string) {
	b.notes = append(b.notes, note)
	b.Netfilter(uint16(typ)|unix.NFNL_SUBSYS_NFTABLES<<8, flags, family, unix.NFNETLINK_V0, 0)
}

// boundary begins the message that opens or ends a transaction.
func (b *batch) boundary(typ uint16, note string) {
	b.notes = append(b.notes, note)
	b.Netfilter(typ, 0, 0, unix.NFNETLINK_V0, unix.NFNL_SUBSYS_NFTABLES)
}
