// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// netcatFlags are the flags of a netcat that KubeVirt's tests use.
type netcatFlags struct {
	listen, udp       bool
	port, from        string
	wait              time.Duration // to connect, and for the last bytes
	program, operands []string
}

// parseNetcat parses flags as busybox does: they may follow the operands, several letters may share a dash, and -e is the
// last of them.
func parseNetcat(args []string) (f netcatFlags, err error) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		if len(a) < 2 || a[0] != '-' {
			f.operands = append(f.operands, a)
			continue
		}
		for j := 1; j < len(a); j++ {
			value := func() (string, error) {
				if j+1 < len(a) {
					defer func() { j = len(a) }()
					return a[j+1:], nil
				}
				if i++; i >= len(args) {
					return "", fmt.Errorf("flag -%c: no value", a[j])
				}
				return args[i], nil
			}
			switch a[j] {
			case 'k', 'n', 'v', '4', '6':
			case 'l':
				f.listen = true
			case 'u':
				f.udp = true
			case 'p':
				f.port, err = value()
			case 's':
				f.from, err = value()
			case 'i':
				_, err = value()
			case 'w':
				var text string
				var seconds int
				if text, err = value(); err == nil {
					seconds, err = strconv.Atoi(text)
				}
				f.wait = time.Duration(seconds) * time.Second
			case 'e':
				f.program = args[i+1:]
				return f, nil
			default:
				return f, fmt.Errorf("flag -%c: unknown", a[j])
			}
			if err != nil {
				return f, err
			}
		}
	}
	return f, nil
}

func netcat(args []string) error {
	f, err := parseNetcat(args)
	if err != nil {
		return err
	}
	if f.listen {
		return f.serve()
	}
	if len(f.operands) != 2 {
		return fmt.Errorf("operands %q: want a host and a port", f.operands)
	}
	network := "tcp"
	if f.udp {
		network = "udp"
	}
	conn, err := (&net.Dialer{Timeout: f.wait}).Dial(network, net.JoinHostPort(f.operands[0], f.operands[1]))
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() { _, _ = io.Copy(conn, os.Stdin) }()
	buf := make([]byte, 1<<16)
	for {
		if f.wait > 0 {
			if err := conn.SetReadDeadline(time.Now().Add(f.wait)); err != nil {
				return err
			}
		}
		n, err := conn.Read(buf)
		if _, bad := os.Stdout.Write(buf[:n]); bad != nil {
			return bad
		}
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// serve executes the program for each connection.
func (f netcatFlags) serve() error {
	l, err := net.Listen("tcp", net.JoinHostPort(f.from, f.port))
	if err != nil {
		return err
	}
	if len(f.program) == 0 {
		return errors.New("flag -e: a server needs a program")
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			c := exec.Command(f.program[0], f.program[1:]...)
			c.Stdout, c.Stderr = conn, os.Stderr
			_ = c.Run() // a client that is gone is none of the server's concern
		}()
	}
}
