// SPDX-License-Identifier: Apache-2.0

package path

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/bench/rounds"
)

// The tests.
const (
	TestTCP     = "tcp rr"  // round trips of one byte per second, on one TCP connection
	TestUDP     = "udp rr"  // round trips of one byte per second, by UDP
	TestConnect = "connect" // connections with one round trip per second
	TestPackets = "packets" // received datagrams of 18 bytes per second, one way
	TestStream  = "stream"  // throughput of one TCP connection, one way: Gbit/s
)

// Tests returns the names of all tests.
func Tests() []string { return []string{TestTCP, TestUDP, TestConnect, TestPackets, TestStream} }

// order is a request to a client or server, a line of JSON.
type order struct {
	Test   string
	To     netip.AddrPort // address of the server
	Millis int
	Serve  bool
}

// outcome is the response to an order, a line of JSON. A server first reports that it is ready.
type outcome struct {
	Ready   bool    `json:",omitempty"`
	Count   float64 `json:",omitempty"`
	Seconds float64 `json:",omitempty"`
	// Typical is the duration of one request in seconds: the median of many short intervals, so that an interval in which
	// the CPU was interrupted does not count.
	Typical float64 `json:",omitempty"`
	Error   string  `json:",omitempty"`
}

// port is the servers' port.
const port = 7000

// ServeOrders runs a client or server process: it executes orders from in until EOF.
func ServeOrders(in io.Reader, out io.Writer) error {
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	e := executor{enc: json.NewEncoder(out)}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var o order
		err := json.Unmarshal(lines.Bytes(), &o)
		var result outcome
		if err == nil && o.Serve {
			result, err = e.serve(o)
		} else if err == nil {
			result, err = request(o)
		}
		if err != nil {
			result = outcome{Error: fmt.Sprintf("%s: %v", o.Test, err)}
		}
		if err := e.enc.Encode(result); err != nil {
			return err
		}
		runtime.GC()
	}
	return lines.Err()
}

// executor executes the orders of one process.
type executor struct {
	enc *json.Encoder
}

// done is the byte that ends a test; a datagram has four of them.
const done = 'E'

// request runs the client of a test.
func request(o order) (outcome, error) {
	kind := unix.SOCK_STREAM
	if o.Test == TestUDP || o.Test == TestPackets {
		kind = unix.SOCK_DGRAM
	}
	if o.Test == TestConnect {
		return connectLoop(o)
	}
	fd, err := dial(kind, o.To)
	if err != nil {
		return outcome{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	count, begin, until := 0, time.Now(), time.Duration(o.Millis)*time.Millisecond
	size := map[string]int{TestTCP: 1, TestUDP: 1, TestPackets: 18, TestStream: 64 << 10}[o.Test]
	b := make([]byte, size)
	const interval = 16 // requests between two readings of the clock, which would be measured otherwise
	var each []float64
	for last := begin; last.Sub(begin) < until; {
		for range interval {
			if err := write(fd, b); err != nil {
				return outcome{}, err
			}
			if o.Test == TestTCP || o.Test == TestUDP {
				if _, err := read(fd, b[:1]); err != nil {
					return outcome{}, fmt.Errorf("no response: %w", err)
				}
			}
			count++
		}
		now := time.Now()
		each = append(each, now.Sub(last).Seconds()/interval)
		last = now
	}
	result := outcome{Count: float64(count), Seconds: time.Since(begin).Seconds()}
	if o.Test == TestTCP || o.Test == TestUDP {
		result.Typical, _, _ = rounds.Spread(each)
	}
	if kind == unix.SOCK_DGRAM {
		for range 20 { // some may be lost; a server stops at the first one
			_ = write(fd, []byte{done, done, done, done})
		}
	}
	return result, nil
}

// connectLoop opens one connection after the other. They end with a reset, so that ports do not run out.
func connectLoop(o order) (outcome, error) {
	count, begin, until := 0, time.Now(), time.Duration(o.Millis)*time.Millisecond
	b := []byte{0}
	var each []float64
	now := begin
	for last := false; !last; count++ {
		if last = now.Sub(begin) >= until; last {
			b[0] = done
		}
		fd, err := dial(unix.SOCK_STREAM, o.To)
		if err != nil {
			return outcome{}, err
		}
		if err = write(fd, b); err == nil {
			_, err = read(fd, b)
		}
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		_ = unix.Close(fd)
		if err != nil {
			return outcome{}, err
		}
		before := now
		now = time.Now()
		each = append(each, now.Sub(before).Seconds())
	}
	result := outcome{Count: float64(count), Seconds: time.Since(begin).Seconds()}
	result.Typical, _, _ = rounds.Spread(each)
	return result, nil
}
