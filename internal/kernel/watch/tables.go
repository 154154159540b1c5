// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// TablesGone opens a socket in ns (nil: the process's own namespace) and puts a token into the channel, which holds
// one, when tables, chains, rules or sets of nft are deleted, by whomever. The channel is closed after ctx ends. What
// is excepted is not heard: a table that one socket changes all the time and nobody else.
//
// The kernel itself leaves out everything else, so that attaching and detaching pods, which adds and deletes elements,
// wakes nobody. It looks at the first message of each packet of them: what begins with an element and goes on with a
// deleted rule is not heard.
func TablesGone(ctx context.Context, ns *netns.NS, excepted ...Own) (<-chan struct{}, error) {
	filter := deletions()
	for _, own := range excepted {
		filter = append(except(own), filter...)
	}
	return listenNft(ctx, ns, filter, func([]byte) bool { return true })
}

// RulesGone is TablesGone that also hears of deleted elements of sets, but of nothing that the socket of a port
// changes: the one by which attachments come and go.
func RulesGone(ctx context.Context, ns *netns.NS, port uint32, excepted ...Own) (<-chan struct{}, error) {
	filter := deletions(unix.NFT_MSG_DELSETELEM)
	for _, own := range excepted {
		filter = append(except(own), filter...)
	}
	filter = append(except(Own{Port: port}), filter...)
	return listenNft(ctx, ns, filter, func([]byte) bool { return true })
}

// deletions is a filter that lets messages about deleted tables, chains, rules and sets through, and those of further
// types. The low byte of the message type says which it is.
func deletions(further ...uint32) []unix.SockFilter {
	at := uint32(4) // of struct nlmsghdr
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		at = 5
	}
	types := append([]uint32{unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELSET},
		further...)
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: at}}
	for i, typ := range types {
		program = append(program, unix.SockFilter{
			Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: typ, Jt: uint8(len(types) - i),
		})
	}
	return append(program,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff})
}

// Own is a table and the port of the socket whose it is; without a table it is all that the socket changes.
type Own struct {
	Port  uint32
	Table string
}

// except is a filter that lets nothing of that port about that table through, and goes on with the rest. The port and
// the table's name stand at fixed places: the name is the first attribute of each message.
func except(own Own) []unix.SockFilter {
	const portAt, nameAt = 12, unix.NLMSG_HDRLEN + 4 + unix.NLA_HDRLEN
	native := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, own.Port)) // loads are in the network's order
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: portAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: native},
	}
	var name []byte
	if own.Table != "" {
		name = append([]byte(own.Table), 0)
	}
	for at := range name {
		program = append(program, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: uint32(nameAt + at)},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(name[at])})
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0})
	for i := range program {
		if program[i].Code == unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K {
			program[i].Jf = uint8(len(program) - 1 - i) // another one: behind all this
		}
	}
	return program
}
