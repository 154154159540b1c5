// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/netns"
)

// TablesGone opens a socket in ns (nil: the process's own namespace) and puts a token into the channel, which holds
// one, when any process deletes tables, chains, rules or sets of nft. The channel is closed after ctx ends. Excepted
// changes are not reported: those of a table that only one socket changes, frequently.
//
// The kernel filters everything else, so that attaching and detaching pods, which adds and deletes elements, wakes no
// process. It checks the first message of each packet only: a packet that begins with an element and continues with a
// deleted rule is not reported.
func TablesGone(ctx context.Context, ns *netns.NS, excepted ...Owner) (<-chan struct{}, error) {
	filter := deletions()
	for _, own := range excepted {
		filter = append(except(own), filter...)
	}
	return listenNft(ctx, ns, filter, func([]byte) bool { return true })
}

// RulesGone is TablesGone that also reports deleted elements of sets, and chains and rules that are added to the tables
// of attachments, whose names are weft and weft_*. It reports no changes from the socket of a port: the one that
// attaches and detaches pods. It checks all messages of a packet.
func RulesGone(ctx context.Context, ns *netns.NS, port uint32, excepted ...Owner) (<-chan struct{}, error) {
	of := tableFilter{
		deleted: deletedRules(), types: []uint32{unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_NEWRULE},
		prefixes: []string{"weft\x00", "weft_"},
	}
	filter := assemble(of.program())
	for _, own := range excepted {
		filter = append(except(own), filter...)
	}
	filter = append(except(Owner{Port: port}), filter...)
	return listenNft(ctx, ns, filter, func(b []byte) bool {
		found := false
		return !of.messages(b, func(string) { found = true }) || found
	})
}

// TableChanges opens a socket in ns (nil: the process's own namespace) and calls heard, from one goroutine, for each
// nft table whose name begins with the prefix and that any process has changed in another namespace that has an id in
// ns. It does not reference those namespaces, so their lifetime does not change. The channel is closed when that
// goroutine has ended, after ctx.
//
// Changes of elements from the socket of a port are not reported: the one that attaches and detaches pods in ns itself.
// Its other changes in ns are received and ignored, because another program's socket in a pod may have the same port.
func TableChanges(
	ctx context.Context, ns *netns.NS, prefix string, port uint32, heard func(Change),
) (<-chan struct{}, error) {
	of := tableFilter{prefixes: []string{prefix}}
	l, err := netlink.Listen(ctx, ns, netlink.Subscription{
		Protocol: unix.NETLINK_NETFILTER, Groups: netlink.Group(unix.NFNLGRP_NFTABLES),
		Filter: assemble(append(exceptElements(port), of.program()...)), Buffer: burst, Namespaces: true,
		Size: datagramSize,
	}, func(_ *netlink.Listener, d netlink.Datagram) {
		if d.Lost {
			heard(Change{Event: Event{Kind: Lost}, NSID: OwnNamespace})
		}
		if d.Lost || d.NSID == OwnNamespace {
			return
		}
		last := ""
		if !of.messages(d.Data, func(name string) {
			if name != last { // a transaction has many messages about one table
				heard(Change{Event: Event{Kind: NftTable}, NSID: d.NSID, NftTable: name})
			}
			last = name
		}) {
			heard(Change{Event: Event{Kind: Lost}, NSID: OwnNamespace})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("watch: nftables: %w", err)
	}
	return l.Done(), nil
}

// deletions returns a filter that passes messages about deleted tables, chains, rules and sets. It compares the low byte
// of the message type.
func deletions() []unix.SockFilter {
	types := []uint32{unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELSET}
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: lowByte(typeAt, 2)}}
	for i, typ := range types {
		program = append(program, unix.SockFilter{
			Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: typ, Jt: uint8(len(types) - i),
		})
	}
	return append(program,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff})
}

// Owner is a table and the port of the socket that owns it; without a table it is everything that the socket changes.
type Owner struct {
	Port  uint32
	Table string
}

// except returns a filter that drops messages from that port about that table, and continues for others. Port and table
// name are at fixed offsets: the name is the first attribute of each message.
func except(own Owner) []unix.SockFilter {
	native := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, own.Port)) // loads use network byte order
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: portAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: native},
	}
	var name []byte
	if own.Table != "" {
		name = append([]byte(own.Table), 0)
	}
	for at := range name {
		program = append(program, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: uint32(tableAt + at)},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(name[at])})
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0})
	for i := range program {
		if program[i].Code == unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K {
			program[i].Jf = uint8(len(program) - 1 - i) // no match: continue after this filter
		}
	}
	return program
}
