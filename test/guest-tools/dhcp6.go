// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Messages and options of DHCPv6 (RFC 8415).
const (
	solicit, advertise, request, reply = 1, 2, 3, 7

	clientID, serverID, iana, iaAddr, elapsed, nameservers = 1, 2, 3, 5, 8, 23
)

// dhcp6 solicits until it has an address.
func dhcp6(link, script string) error {
	i, err := net.InterfaceByName(link)
	if err != nil {
		return err
	}
	for {
		if err = lease(i, script); err == nil {
			return nil
		}
		time.Sleep(time.Second)
	}
}

// lease runs one exchange. The link-local address may not exist yet.
func lease(i *net.Interface, script string) error {
	conn, err := net.ListenUDP("udp6", &net.UDPAddr{Port: 546, Zone: i.Name})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	id := make([]byte, 3)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	duid := append([]byte{0, 3, 0, 1}, i.HardwareAddr...)
	own := append(option(clientID, duid), option(elapsed, []byte{0, 0})...)
	offer, err := exchange(conn, i, append(append([]byte{solicit}, id...),
		append(own, option(iana, make([]byte, 12))...)...),
		advertise)
	if err != nil {
		return err
	}
	has := options(offer[4:])
	if len(has[iana]) < 12 || len(has[serverID]) == 0 {
		return errors.New("the offer has no address")
	}
	own = append(own, option(serverID, has[serverID])...)
	answer, err := exchange(conn, i, append(append([]byte{request}, id...),
		append(own, option(iana, has[iana])...)...), reply)
	if err != nil {
		return err
	}
	return configure(i, script, options(answer[4:]))
}

// configure runs the script with the values of a reply.
func configure(i *net.Interface, script string, has map[uint16][]byte) error {
	if len(has[iana]) < 12 {
		return errors.New("the answer has no address")
	}
	address := options(has[iana][12:])[iaAddr]
	if len(address) < 16 {
		return errors.New("the answer has no address")
	}
	ip, _ := netip.AddrFromSlice(address[:16])
	var dns []string
	for b := has[nameservers]; len(b) >= 16; b = b[16:] {
		a, _ := netip.AddrFromSlice(b[:16])
		dns = append(dns, a.String())
	}
	cmd := exec.Command(script, "bound6")
	cmd.Env = append(os.Environ(), "interface="+i.Name, "ip="+ip.String(), "dns="+strings.Join(dns, " "))
	return cmd.Run()
}

// exchange sends a message and waits for the reply.
func exchange(conn *net.UDPConn, i *net.Interface, message []byte, want byte) ([]byte, error) {
	if _, err := conn.WriteToUDP(message, &net.UDPAddr{
		IP: net.ParseIP("ff02::1:2"), Port: 547, Zone: i.Name,
	}); err != nil {
		return nil, err
	}
	if err := conn.SetReadDeadline(time.Now().Add(3 * time.Second)); err != nil {
		return nil, err
	}
	b := make([]byte, 1<<16)
	for {
		n, _, err := conn.ReadFromUDP(b)
		if err != nil {
			return nil, err
		}
		if n >= 4 && b[0] == want && bytes.Equal(b[1:4], message[1:4]) {
			return b[:n], nil
		}
	}
}

func option(code uint16, b []byte) []byte {
	out := binary.BigEndian.AppendUint16(nil, code)
	out = binary.BigEndian.AppendUint16(out, uint16(len(b)))
	return append(out, b...)
}

func options(b []byte) map[uint16][]byte {
	out := map[uint16][]byte{}
	for len(b) >= 4 {
		code, n := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
		if len(b) < 4+n {
			break
		}
		out[code], b = b[4:4+n], b[4+n:]
	}
	return out
}
