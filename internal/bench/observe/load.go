// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/bench/subprocess"
	"github.com/weft-net/weft/internal/netns"
)

// Ports: those of the load's source, and that of its destination.
const (
	firstPort, lastPort = 10000, 60000
	loadPort            = 7100
	sinkBuffer          = 64 << 20
)

// loadOrder is a request to the load, a line of JSON.
type loadOrder struct {
	To     netip.AddrPort
	Rate   int // flows a second
	Millis int
}

// loadOutcome is its response.
type loadOutcome struct {
	Made  int
	Error string `json:",omitempty"`
}

// load is the process that sends datagrams, and the socket that receives them.
type load struct {
	process *subprocess.Process
	sink    *net.UDPConn
	to      netip.AddrPort
}

// startLoad starts the process in the first pod and opens the socket in the second.
func (n *node) startLoad(self string) (l *load, err error) {
	l = &load{to: netip.AddrPortFrom(n.pods[1].addr, loadPort)}
	if l.sink, err = listen(n.pods[1].ns, l.to); err != nil {
		return nil, err
	}
	if l.process, err = subprocess.Start(n.pods[0].ns, -1, self, "part", "flows"); err != nil {
		return nil, errors.Join(err, l.sink.Close())
	}
	return l, nil
}

// listen opens a socket that receives datagrams, and discards what it has no room for.
func listen(ns *netns.NS, at netip.AddrPort) (c *net.UDPConn, err error) {
	err = ns.Do(func() error {
		if c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); err != nil {
			return err
		}
		return c.SetReadBuffer(sinkBuffer) // what has no room would be dropped packets, which are flows, too
	})
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	go func() {
		b := make([]byte, 64)
		for {
			if _, err := c.Read(b); errors.Is(err, net.ErrClosed) {
				return
			}
		}
	}()
	return c, nil
}

// Stop ends the process.
func (l *load) Stop() {
	l.process.Stop()
	_ = l.sink.Close()
}

// run makes flows for a time, and returns how many.
func (l *load) run(ctx context.Context, rate int, span time.Duration) (made int, err error) {
	if rate == 0 {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(span):
			return 0, nil
		}
	}
	if err := l.process.Send(loadOrder{To: l.to, Rate: rate, Millis: int(span / time.Millisecond)}); err != nil {
		return 0, err
	}
	var outcome loadOutcome
	if err := l.process.Receive(&outcome); err != nil {
		return 0, err
	}
	if outcome.Error != "" {
		return outcome.Made, errors.New(outcome.Error)
	}
	return outcome.Made, nil
}

// Load executes orders from in until EOF.
func Load(in io.Reader, out io.Writer) error {
	port := firstPort
	lines, enc := bufio.NewScanner(in), json.NewEncoder(out)
	for lines.Scan() {
		var o loadOrder
		var result loadOutcome
		err := json.Unmarshal(lines.Bytes(), &o)
		if err == nil {
			result.Made, err = send(o, &port)
		}
		if err != nil {
			result.Error = fmt.Sprintf("load: %v", err)
		}
		if err := enc.Encode(result); err != nil {
			return err
		}
	}
	return lines.Err()
}

// send sends datagrams at the rate, in bursts of a millisecond.
func send(o loadOrder, port *int) (made int, err error) {
	const burst = time.Millisecond
	to := unix.SockaddrInet4{Port: int(o.To.Port()), Addr: o.To.Addr().As4()}
	began, span := time.Now(), time.Duration(o.Millis)*time.Millisecond
	for now := time.Duration(0); now < span; now = time.Since(began) {
		for due := int(now.Seconds() * float64(o.Rate)); made < due; made++ {
			if err := sendFrom(*port, &to); err != nil {
				return made, err
			}
			if *port++; *port > lastPort {
				*port = firstPort
			}
		}
		time.Sleep(burst)
	}
	return made, nil
}

// sendFrom sends one datagram from a port.
func sendFrom(port int, to unix.Sockaddr) (err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port}); err != nil {
		return err
	}
	return unix.Sendto(fd, []byte{0}, 0, to)
}
