// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// generation is that of the rules where a pod's policies are enforced: each transaction has the next one.
func (w *world) generation(p *pod) uint32 {
	w.Helper()
	ns := p.node.ns
	if w.onWire() {
		ns = p.ns
	}
	var number uint32
	err := ns.Do(func() (err error) {
		number, err = generation()
		return err
	})
	if err != nil {
		w.Fatalf("generation of the rules of %s: %v", p.name, err)
	}
	return number
}

// generation asks the kernel for that of the thread's namespace.
func generation() (uint32, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	const head = unix.SizeofNlMsghdr + 4 // struct nfgenmsg
	ask := binary.NativeEndian.AppendUint32(nil, head)
	ask = binary.NativeEndian.AppendUint16(ask, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN)
	ask = binary.NativeEndian.AppendUint16(ask, unix.NLM_F_REQUEST)
	ask = append(ask, make([]byte, head-len(ask))...)
	if err := unix.Sendto(fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	answer := make([]byte, 1<<12)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return 0, err
	}
	for at := head; at+8 <= n; {
		size := int(binary.NativeEndian.Uint16(answer[at:]))
		if binary.NativeEndian.Uint16(answer[at+2:]) == unix.NFTA_GEN_ID {
			return binary.BigEndian.Uint32(answer[at+4:]), nil
		}
		at += max((size+3)&^3, 4)
	}
	return 0, fmt.Errorf("the kernel's answer %x has no generation", answer[:n])
}
