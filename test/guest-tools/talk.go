// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"strconv"
	"time"
)

// talk sends numbered lines to whoever calls, and does not listen.
func talk(port string, every time.Duration) error {
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
			say(conn, every)
		}()
	}
}

// say sends numbered lines until nobody takes them.
func say(conn net.Conn, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		if _, err := conn.Write([]byte(strconv.Itoa(n) + "\n")); err != nil {
			return
		}
		<-tick.C
	}
}
