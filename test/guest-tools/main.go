// SPDX-License-Identifier: Apache-2.0

// Command guest-tools has tools for an emulated guest that busybox lacks.
//
//	guest-tools dhcp6 LINK SCRIPT                 requests an address by DHCPv6 and runs SCRIPT bound6 with ip, dns, interface
//	guest-tools udp ADDR:PORT INTERVAL            sends a numbered packet at each interval, forever
//	guest-tools tcp ADDR:PORT INTERVAL            sends a numbered line at each interval and waits for its echo; prints the error at the end
//	guest-tools echo PORT                         echoes, TCP and UDP
//	guest-tools talk PORT INTERVAL                sends a numbered line at each interval on each connection
//	guest-tools frames LINK BASE64…               sends frames as they are
//	guest-tools answer PORT NAME                  responds with its name to weft lab reach, and serves as talk for weft lab migrate
//	guest-tools try TIMEOUT PROTO,ADDR:PORT,NAME… connects to them as weft lab reach does, and prints the results
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "guest-tools: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 3 && args[0] == "dhcp6":
		return dhcp6(args[1], args[2])
	case len(args) == 3 && (args[0] == "udp" || args[0] == "tcp"):
		every, err := time.ParseDuration(args[2])
		if err != nil {
			return err
		}
		conn, err := net.DialTimeout(args[0], args[1], 30*time.Second)
		if err != nil {
			return err
		}
		if args[0] == "udp" {
			return sendPackets(conn.(*net.UDPConn), every)
		}
		return exchangeLines(conn, every)
	case len(args) == 2 && args[0] == "echo":
		return serveEcho(args[1])
	case len(args) == 3 && args[0] == "talk":
		every, err := time.ParseDuration(args[2])
		if err != nil {
			return err
		}
		return serveLines(args[1], every)
	}
	if len(args) > 2 && args[0] == "frames" {
		return sendFrames(args[1], args[2:])
	}
	if len(args) == 3 && args[0] == "answer" {
		return answer(args[1], args[2])
	}
	if len(args) > 2 && args[0] == "try" {
		timeout, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		return try(timeout, args[2:])
	}
	return errors.New(
		"dhcp6 LINK SCRIPT, udp ADDR:PORT INTERVAL, tcp ADDR:PORT INTERVAL, echo PORT, talk PORT INTERVAL, frames LINK BASE64…, answer PORT NAME or try TIMEOUT PROTO,ADDR:PORT,NAME…",
	)
}

// exchangeLines returns when the connection fails.
func exchangeLines(conn net.Conn, every time.Duration) error {
	r := bufio.NewReader(conn)
	tick := time.NewTicker(every)
	for n := 0; ; n++ {
		if _, err := fmt.Fprintf(conn, "%d\n", n); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		got, err := r.ReadString('\n')
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if got != fmt.Sprintf("%d\n", n) {
			return fmt.Errorf("line %d was echoed as %q", n, got)
		}
		<-tick.C
	}
}

func serveEcho(port string) error {
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	p, err := net.ListenPacket("udp", ":"+port)
	if err != nil {
		return err
	}
	go func() {
		b := make([]byte, 1<<16)
		for {
			if n, from, err := p.ReadFrom(b); err == nil {
				_, _ = p.WriteTo(b[:n], from)
			}
		}
	}()
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}()
	}
}
