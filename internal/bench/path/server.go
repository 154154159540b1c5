// SPDX-License-Identifier: Apache-2.0

package path

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// serve runs the server of a test until its end.
func (e executor) serve(o order) (outcome, error) {
	kind, handle := unix.SOCK_STREAM, map[string]func(int) (outcome, error){
		TestTCP: serveEcho, TestStream: serveStream, TestConnect: serveConnect,
		TestUDP: serveDatagrams(true), TestPackets: serveDatagrams(false),
	}[o.Test]
	if handle == nil {
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
	if err := e.enc.Encode(outcome{Ready: true}); err != nil {
		return outcome{}, err
	}
	return handle(fd)
}

// acceptOne accepts the next connection.
func acceptOne(fd int) (int, error) {
	c, err := accept(fd)
	if err != nil {
		return -1, fmt.Errorf("no connection: %w", err)
	}
	return c, unix.SetsockoptInt(c, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
}

func serveEcho(fd int) (outcome, error) {
	c, err := acceptOne(fd)
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

func serveStream(fd int) (outcome, error) {
	c, err := acceptOne(fd)
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

func serveConnect(fd int) (outcome, error) {
	b := []byte{0}
	for b[0] != done {
		c, err := acceptOne(fd)
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

// serveDatagrams counts datagrams, and echoes them if echo is set. One of four bytes is the last.
func serveDatagrams(echo bool) func(int) (outcome, error) {
	return func(fd int) (outcome, error) {
		b, count := make([]byte, 64), 0
		var sender unix.RawSockaddrInet4
		var begin time.Time
		for {
			n, err := recvFrom(fd, b, &sender)
			if errors.Is(err, unix.EAGAIN) && count > 0 { // the last ones were lost
				return outcome{Count: float64(count), Seconds: (time.Since(begin) - ioTimeout).Seconds()}, nil
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
			if count++; echo {
				sendTo(fd, b[:n], &sender)
			}
		}
	}
}
