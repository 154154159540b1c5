// SPDX-License-Identifier: Apache-2.0

// Command sctp replaces agnhost in a pod of the test cluster. On a kernel without SCTP it sends SCTP's first packet and
// the response on raw sockets, instead of agnhost's connections, so that network policies can be tested. It executes
// agnhost for everything else, and on kernels with SCTP.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const agnhost = "/agnhost.real"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP); errors.Is(err, unix.EPROTONOSUPPORT) {
		if len(os.Args) > 2 && os.Args[1] == "connect" && slices.Contains(os.Args, "--protocol=sctp") {
			return connect(os.Args[2:])
		}
		for _, v := range os.Environ() {
			if rest, is := strings.CutPrefix(v, "SERVE_SCTP_PORT_"); is && len(os.Args) > 1 && os.Args[1] == "porter" {
				port, _, _ := strings.Cut(rest, "=")
				return serve(port)
			}
		}
	} else if err == nil {
		_ = unix.Close(fd)
	}
	return syscall.Exec(agnhost, append([]string{"agnhost"}, os.Args[1:]...), os.Environ())
}

// The chunks: INIT and INIT ACK, of 20 bytes each, after 12 bytes of header.
const (
	chunkInit = 1
	chunkAck  = 2
	size      = 12 + 20
)

// packet returns an SCTP packet with one of these chunks.
func packet(from, to uint16, tag uint32, chunk byte) []byte {
	m := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from), to)
	m = binary.BigEndian.AppendUint32(m, tag)
	m = append(m, 0, 0, 0, 0, chunk, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1)
	binary.LittleEndian.PutUint32(m[8:], crc32.Checksum(m, crc32.MakeTable(crc32.Castagnoli)))
	return m
}

// hear waits for the next packet with this chunk to a port.
func hear(fd int, port uint16, chunk byte) (from netip.Addr, source uint16, err error) {
	b := make([]byte, 2048)
	for {
		n, who, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			return from, 0, err
		}
		head := int(b[0]&15) * 4 // IPv4 header
		if m := b[:n]; n >= head+size && m[head+12] == chunk && binary.BigEndian.Uint16(m[head+2:]) == port {
			return netip.AddrFrom4(who.(*unix.SockaddrInet4).Addr), binary.BigEndian.Uint16(m[head:]), nil
		}
	}
}

func raw() (int, error) {
	return unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
}

// connect prints the same messages as agnhost.
func connect(args []string) error {
	var to netip.AddrPort
	patience := 3 * time.Second
	for _, a := range args {
		if v, is := strings.CutPrefix(a, "--timeout="); is {
			d, err := time.ParseDuration(v)
			if err != nil {
				return err
			}
			patience = d
		} else if p, err := netip.ParseAddrPort(a); err == nil {
			to = p
		}
	}
	if !to.Addr().Is4() {
		return fmt.Errorf("OTHER: %v is no IPv4 address", to)
	}
	fd, err := raw()
	if err != nil {
		return fmt.Errorf("OTHER: %w", err)
	}
	wait := unix.NsecToTimeval(int64(200 * time.Millisecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return fmt.Errorf("OTHER: %w", err)
	}
	port := uint16(20000 + os.Getpid()%20000 + int(time.Now().UnixNano())%20000)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err := unix.Sendto(fd, packet(port, to.Port(), 0, chunkInit), 0, &unix.SockaddrInet4{
			Addr: to.Addr().As4(),
		}); err != nil && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("OTHER: %w", err)
		}
		if from, source, err := hear(fd, port, chunkAck); err == nil && from == to.Addr() && source == to.Port() {
			return nil
		}
	}
	return errors.New("TIMEOUT")
}

// serve responds on a port.
func serve(text string) error {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return err
	}
	fd, err := raw()
	if err != nil {
		return err
	}
	fmt.Println("answers SCTP by hand on port", n)
	for {
		from, source, err := hear(fd, uint16(n), chunkInit)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if err == nil {
			_ = unix.Sendto(fd, packet(uint16(n), source, 1, chunkAck), 0, &unix.SockaddrInet4{Addr: from.As4()})
		}
	}
}
