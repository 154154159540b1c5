// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"
)

// answer responds with its name over TCP and UDP, as weft lab reach requests it. A client can request numbered lines at
// an interval instead.
func answer(port, name string) error {
	p, err := net.ListenPacket("udp", ":"+port)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	go func() {
		b := make([]byte, 512)
		for {
			if n, from, err := p.ReadFrom(b); err == nil && bytes.HasSuffix(b[:n], []byte("\n")) {
				_, _ = p.WriteTo(append([]byte(name+" "), b[:n]...), from)
			}
		}
	}()
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			line, err := bufio.NewReader(io.LimitReader(conn, 256)).ReadString('\n')
			if err != nil {
				return
			}
			if every, is := strings.CutPrefix(line, "weft talk "); is {
				if pause, err := time.ParseDuration(strings.TrimSpace(every)); err == nil && pause > 0 {
					_ = conn.SetDeadline(time.Time{})
					sendLines(conn, pause)
				}
				return
			}
			_, _ = io.WriteString(conn, name+" "+line)
		}()
	}
}

// try tries targets (proto,addr:port,name) concurrently, and prints for each its number and "ok" or the error.
func try(timeout time.Duration, targets []string) error {
	out := make([]string, len(targets))
	var all sync.WaitGroup
	for i, target := range targets {
		all.Go(func() {
			out[i] = "ok"
			if err := tryOne(time.Now().Add(timeout), target); err != nil {
				out[i] = strings.ReplaceAll(err.Error(), "\n", " ")
				if errors.Is(err, os.ErrDeadlineExceeded) {
					out[i] = "no answer"
				}
			}
		})
	}
	all.Wait()
	for i, s := range out {
		fmt.Printf("try %d %s\n", i, s)
	}
	return nil
}

const question = "weft reach\n"

func tryOne(deadline time.Time, target string) error {
	f := strings.SplitN(target, ",", 3)
	if len(f) != 3 {
		return errors.New("proto,addr:port,name")
	}
	to, err := netip.ParseAddrPort(f[1])
	if err != nil {
		return err
	}
	if strings.HasPrefix(f[0], "icmp") {
		return ping(deadline, to.Addr())
	}
	conn, err := net.DialTimeout(f[0], f[1], time.Until(deadline))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	b := make([]byte, 512)
	for {
		if _, err := io.WriteString(conn, question); err != nil {
			return err
		}
		wait := deadline
		if again := time.Now().Add(250 * time.Millisecond); strings.HasPrefix(f[0], "udp") && again.Before(deadline) {
			wait = again
		}
		_ = conn.SetReadDeadline(wait)
		n, err := conn.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(deadline) {
			continue
		}
		if err != nil {
			return err
		}
		if got := string(b[:n]); got != f[2]+" "+question {
			return fmt.Errorf("answered by %q", got)
		}
		return nil
	}
}

// ping sends echo requests until a reply arrives.
func ping(deadline time.Time, to netip.Addr) error {
	network, kind, reply := "ip4:icmp", byte(8), byte(0)
	if to.Is6() {
		network, kind, reply = "ip6:ipv6-icmp", 128, 129
	}
	conn, err := net.Dial(network, to.String())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	id := uint16(rand.Uint32())
	b := make([]byte, 512)
	for time.Now().Before(deadline) {
		m := binary.BigEndian.AppendUint16([]byte{kind, 0, 0, 0}, id)
		m = append(m, 0, 1)
		binary.BigEndian.PutUint16(m[2:], checksum(m))
		if _, err := conn.Write(m); err != nil {
			return err
		}
		again := time.Now().Add(300 * time.Millisecond)
		_ = conn.SetReadDeadline(again)
		for time.Now().Before(again) {
			n, err := conn.Read(b)
			if err != nil {
				break
			}
			got := b[:n]
			if to.Is4() && n > 20 { // the IPv4 header is included
				got = got[min(int(b[0]&15)*4, n):]
			}
			if len(got) >= 8 && got[0] == reply && binary.BigEndian.Uint16(got[4:]) == id {
				return nil
			}
		}
	}
	return os.ErrDeadlineExceeded
}

// checksum is the Internet checksum; the kernel computes that of ICMPv6.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
