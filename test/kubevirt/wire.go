// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// guestTap is an open tap of a guest.
type guestTap struct {
	f   *os.File
	mac net.HardwareAddr
}

// frame is a received datagram and its destination port.
type frame struct {
	port    uint16
	payload []byte
}

// open opens the tap as a hypervisor does, with multiple queues if it has them.
func open(name string) (*os.File, error) {
	var last error
	for _, flags := range []uint16{0, unix.IFF_MULTI_QUEUE} {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		req, err := unix.NewIfreq(name)
		if err != nil {
			return nil, errors.Join(err, unix.Close(fd))
		}
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | flags)
		if last = unix.IoctlIfreq(fd, unix.TUNSETIFF, req); last == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		_ = unix.Close(fd)
	}
	return nil, last
}

const (
	headEther, head4, head6, headUDP = 14, 20, 40, 8
	protoUDP, protoICMP6             = 17, 58
)

func (w *guestTap) ether(to net.HardwareAddr, kind uint16) []byte {
	b := append(append([]byte{}, to...), w.mac...)
	return binary.BigEndian.AppendUint16(b, kind)
}

func udp(from, to uint16, payload []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, from)
	b = binary.BigEndian.AppendUint16(b, to)
	b = binary.BigEndian.AppendUint16(b, uint16(headUDP+len(payload)))
	return append(append(b, 0, 0), payload...)
}

// send4 broadcasts a DHCP datagram of a client.
func (w *guestTap) send4(payload []byte) error {
	body := udp(68, 67, payload)
	ip := make([]byte, head4)
	ip[0], ip[8], ip[9] = 0x45, 64, protoUDP
	binary.BigEndian.PutUint16(ip[2:], uint16(head4+len(body)))
	copy(ip[16:], net.IPv4bcast.To4())
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	_, err := w.f.Write(append(append(w.ether(net.HardwareAddr{255, 255, 255, 255, 255, 255}, 0x0800), ip...), body...))
	return err
}

// send6 sends a DHCPv6 datagram of a client to all servers.
func (w *guestTap) send6(payload []byte) error {
	body := udp(546, 547, payload)
	return w.packet6(net.HardwareAddr{0x33, 0x33, 0, 1, 0, 2}, netip.MustParseAddr("ff02::1:2"), protoUDP, body, 6)
}

func (w *guestTap) packet6(to net.HardwareAddr, dst netip.Addr, proto byte, body []byte, sum int) error {
	ip := make([]byte, head6)
	ip[0], ip[6], ip[7] = 0x60, proto, 255
	binary.BigEndian.PutUint16(ip[4:], uint16(len(body)))
	src := w.own()
	copy(ip[8:], src.AsSlice())
	copy(ip[24:], dst.AsSlice())
	pseudo := append(append(append([]byte{}, ip[8:40]...), 0, 0, byte(len(body)>>8), byte(len(body)), 0, 0, 0, proto),
		body...)
	binary.BigEndian.PutUint16(body[sum:], checksum(pseudo))
	_, err := w.f.Write(append(append(w.ether(to, 0x86dd), ip...), body...))
	return err
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i]) << 8
		if i+1 < len(b) {
			sum += uint32(b[i+1])
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// receive waits for the next datagram to the guest, and responds to neighbor solicitations.
func (w *guestTap) receive(end time.Time) (frame, error) {
	if err := w.f.SetReadDeadline(end); err != nil {
		return frame{}, err
	}
	b := make([]byte, 1<<16)
	for {
		n, err := w.f.Read(b)
		if err != nil {
			return frame{}, err
		}
		if n < headEther+head4 {
			continue
		}
		kind, p := binary.BigEndian.Uint16(b[12:]), b[headEther:n]
		switch {
		case kind == 0x0800 && p[9] == protoUDP && len(p) > int(p[0]&15)*4+headUDP:
			p = p[int(p[0]&15)*4:]
		case kind == 0x86dd && len(p) > head6+headUDP && p[6] == protoUDP:
			p = p[head6:]
		case kind == 0x86dd && len(p) >= head6+24 && p[6] == protoICMP6 && p[head6] == 135:
			if err := w.advertise(net.HardwareAddr(b[6:12]), p); err != nil {
				return frame{}, err
			}
			continue
		default:
			continue
		}
		return frame{binary.BigEndian.Uint16(p[2:]), p[headUDP:]}, nil
	}
}

// advertise responds to a neighbor solicitation for the guest's address.
func (w *guestTap) advertise(to net.HardwareAddr, p []byte) error {
	src, _ := netip.AddrFromSlice(p[8:24])
	target, _ := netip.AddrFromSlice(p[head6+8 : head6+24])
	if target != w.own() || src.IsUnspecified() {
		return nil
	}
	body := append([]byte{136, 0, 0, 0, 0x60, 0, 0, 0}, target.AsSlice()...)
	body = append(append(body, 2, 1), w.mac...)
	return w.packet6(to, src, protoICMP6, body, 2)
}
