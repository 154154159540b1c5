// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"strconv"
	"time"
)

// serveLines sends numbered lines on each connection, and reads nothing.
func serveLines(port string, every time.Duration) error {
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = conn.Close() }()
			sendLines(conn, every)
		}()
	}
}

// sendLines sends numbered lines until a write fails.
func sendLines(conn net.Conn, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		if _, err := conn.Write([]byte(strconv.Itoa(n) + "\n")); err != nil {
			return
		}
		<-tick.C
	}
}
