// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/weft-net/weft/internal/netns"
)

const (
	echoRequest4, echoReply4 = 8, 0
	echoRequest6, echoReply6 = 128, 129
)

// ping sends echo requests until it gets a reply. Every raw socket of a namespace gets a copy of every reply, so a random
// payload identifies the replies to these requests.
func ping(ctx context.Context, from *netns.NS, to netip.Addr) error {
	network, reply := "ip4:icmp", byte(echoReply4)
	if to.Is6() {
		network, reply = "ip6:ipv6-icmp", echoReply6
	}
	var c *net.IPConn
	err := from.Do(func() (err error) {
		c, err = net.DialIP(network, nil, &net.IPAddr{IP: to.AsSlice()})
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	request := echoRequest(to.Is6())
	body := request[8:]
	buf := make([]byte, 1500)
	return repeat(ctx, c, func() error {
		_, err := c.Write(request)
		return err
	}, func() (bool, error) {
		n, src, err := c.ReadFromIP(buf)
		if err != nil {
			return false, err
		}
		m := buf[:n]
		if len(m) < 8 || m[0] != reply || !bytes.Equal(m[8:], body) {
			return false, nil
		}
		if a, _ := netip.AddrFromSlice(src.IP); a.Unmap() != to {
			return true, fmt.Errorf("reply from %s", a)
		}
		return true, nil
	})
}

func echoRequest(v6 bool) []byte {
	m := make([]byte, 8+16)
	m[0] = echoRequest4
	if v6 {
		m[0] = echoRequest6 // the kernel fills in the checksum, which covers addresses too
	}
	_, _ = rand.Read(m[8:]) // never fails (crypto/rand)
	copy(m[4:6], m[8:10])   // the identifier, for packet dumps
	m[7] = 1
	if !v6 {
		binary.BigEndian.PutUint16(m[2:4], checksum(m))
	}
	return m
}

// checksum returns the Internet checksum of an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
