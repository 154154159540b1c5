// SPDX-License-Identifier: Apache-2.0

package path

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// serve answers the load of a test until its end.
func (e end) serve(o order) (outcome, error) {
	kind, answer := unix.SOCK_STREAM, map[string]func(int) (outcome, error){
		TestTCP: echoes, TestStream: swallow, TestConnect: greet, TestUDP: datagrams(true), TestPackets: datagrams(false),
	}[o.Test]
	if answer == nil {
		return outcome{}, fmt.Errorf("no such test")
	}
	if o.Test == TestUDP || o.Test == TestPackets {
		kind = unix.SOCK_DGRAM
	}
	fd, err := socket(kind)
	if err != nil {
		return outcome{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port}); err != nil {
		return outcome{}, err
	}
	if kind == unix.SOCK_STREAM {
		if err := unix.Listen(fd, 128); err != nil {
			return outcome{}, err
		}
	}
	if err := e.say.Encode(outcome{Ready: true}); err != nil {
		return outcome{}, err
	}
	return answer(fd)
}

// one is the next connection.
func one(fd int) (int, error) {
	c, err := accept(fd)
	if err != nil {
		return -1, fmt.Errorf("no connection: %w", err)
	}
	return c, unix.SetsockoptInt(c, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
}

func echoes(fd int) (outcome, error) {
	c, err := one(fd)
	if err != nil {
		return outcome{}, err
	}
	defer func() { _ = unix.Close(c) }()
	b := make([]byte, 16)
	for {
		n, err := read(c, b)
		if err != nil || n == 0 {
			return outcome{}, err
		}
		if err := write(c, b[:n]); err != nil {
			return outcome{}, err
		}
	}
}

func swallow(fd int) (outcome, error) {
	c, err := one(fd)
	if err != nil {
		return outcome{}, err
	}
	defer func() { _ = unix.Close(c) }()
	b, total, begin := make([]byte, 256<<10), 0, time.Now()
	for {
		n, err := read(c, b)
		if err != nil {
			return outcome{}, err
		}
		if n == 0 {
			return outcome{Count: float64(total) * 8 / 1e9, Seconds: time.Since(begin).Seconds()}, nil
		}
		total += n
	}
}

func greet(fd int) (outcome, error) {
	b := []byte{0}
	for b[0] != done {
		c, err := one(fd)
		if err != nil {
			return outcome{}, err
		}
		if _, err = read(c, b); err == nil {
			err = write(c, b)
		}
		_, _ = read(c, []byte{0}) // its end
		_ = unix.Close(c)
		if err != nil {
			return outcome{}, err
		}
	}
	return outcome{}, nil
}

// datagrams answers or counts them. One of four bytes is the last.
func datagrams(back bool) func(int) (outcome, error) {
	return func(fd int) (outcome, error) {
		b, count := make([]byte, 64), 0
		var who unix.RawSockaddrInet4
		var begin time.Time
		for {
			n, err := from(fd, b, &who)
			if errors.Is(err, unix.EAGAIN) && count > 0 { // the last ones were lost
				return outcome{Count: float64(count), Seconds: (time.Since(begin) - patience).Seconds()}, nil
			}
			if err != nil {
				return outcome{}, err
			}
			if n == 4 {
				return outcome{Count: float64(count), Seconds: time.Since(begin).Seconds()}, nil
			}
			if count == 0 {
				begin = time.Now()
			}
			if count++; back {
				to(fd, b[:n], &who)
			}
		}
	}
}
