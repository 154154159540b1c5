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
	TestTCP     = "tcp rr"  // one byte there and back, in one connection: per second
	TestUDP     = "udp rr"  // the same in datagrams
	TestConnect = "connect" // connect, one byte there and back, end: per second
	TestPackets = "packets" // datagrams of 18 bytes, one way: that arrive per second
	TestStream  = "stream"  // one TCP connection, one way: Gbit/s
)

// Tests are all tests.
func Tests() []string { return []string{TestTCP, TestUDP, TestConnect, TestPackets, TestStream} }

// order is what an end is told to do, a line of JSON.
type order struct {
	Test   string
	To     netip.AddrPort // of the server; its own of a server
	Millis int
	Serve  bool
}

// outcome is what an end says, a line of JSON. A server first says that it is ready.
type outcome struct {
	Ready   bool    `json:",omitempty"`
	Count   float64 `json:",omitempty"`
	Seconds float64 `json:",omitempty"`
	// Typical is the seconds of one request: of many short stretches the median, so that one in which the processor did
	// something else does not count.
	Typical float64 `json:",omitempty"`
	Error   string  `json:",omitempty"`
}

// port is where servers listen.
const port = 7000

// End is the life of an end: it does what in says until in ends.
func End(in io.Reader, out io.Writer) error {
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	e := end{say: json.NewEncoder(out)}
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
		if err := e.say.Encode(result); err != nil {
			return err
		}
		runtime.GC()
	}
	return lines.Err()
}

type end struct {
	say *json.Encoder
}

// done is the datagram, and the byte, that ends a test.
const done = 'E'

// request makes the load of a test.
func request(o order) (outcome, error) {
	kind := unix.SOCK_STREAM
	if o.Test == TestUDP || o.Test == TestPackets {
		kind = unix.SOCK_DGRAM
	}
	if o.Test == TestConnect {
		return connects(o)
	}
	fd, err := dial(kind, o.To)
	if err != nil {
		return outcome{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	count, begin, until := 0, time.Now(), time.Duration(o.Millis)*time.Millisecond
	size := map[string]int{TestTCP: 1, TestUDP: 1, TestPackets: 18, TestStream: 64 << 10}[o.Test]
	b := make([]byte, size)
	const stretch = 16 // the clock is not what is measured
	var each []float64
	for last := begin; last.Sub(begin) < until; {
		for range stretch {
			if err := write(fd, b); err != nil {
				return outcome{}, err
			}
			if o.Test == TestTCP || o.Test == TestUDP {
				if _, err := read(fd, b[:1]); err != nil {
					return outcome{}, fmt.Errorf("no answer: %w", err)
				}
			}
			count++
		}
		now := time.Now()
		each = append(each, now.Sub(last).Seconds()/stretch)
		last = now
	}
	result := outcome{Count: float64(count), Seconds: time.Since(begin).Seconds()}
	if o.Test == TestTCP || o.Test == TestUDP {
		result.Typical, _, _ = rounds.Spread(each)
	}
	if kind == unix.SOCK_DGRAM {
		for range 20 { // some may be lost; who heard one is not there for the next
			_ = write(fd, []byte{done, done, done, done})
		}
	}
	return result, nil
}

// connects makes one connection after the other. They end with a reset: ports must not run out.
func connects(o order) (outcome, error) {
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
		was := now
		now = time.Now()
		each = append(each, now.Sub(was).Seconds())
	}
	result := outcome{Count: float64(count), Seconds: time.Since(begin).Seconds()}
	result.Typical, _, _ = rounds.Spread(each)
	return result, nil
}
