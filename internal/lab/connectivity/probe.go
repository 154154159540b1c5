// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

// retransmit is the time after which a request without a reply is sent again.
const retransmit = 250 * time.Millisecond

const request = "weft reach\n"

func probeTCP(ctx context.Context, from *netns.NS, to netip.AddrPort, name string) error {
	var c net.Conn
	// The socket must be created inside the namespace; the goroutine that net.Dialer starts only watches the context.
	err := from.Do(func() (err error) {
		c, err = new(net.Dialer).DialContext(ctx, "tcp", to.String())
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	reply, err := bufio.NewReader(io.LimitReader(c, 512)).ReadString('\n')
	if err != nil {
		return err
	}
	return checkReply(reply, name)
}

func probeUDP(ctx context.Context, from *netns.NS, to netip.AddrPort, name string) error {
	var c *net.UDPConn
	err := from.Do(func() (err error) {
		c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	buf := make([]byte, 512)
	return repeat(ctx, c, func() error {
		_, err := io.WriteString(c, request)
		return err
	}, func() (bool, error) {
		n, err := c.Read(buf)
		if err != nil {
			return false, err
		}
		return true, checkReply(string(buf[:n]), name)
	})
}

// repeat sends a request, again after each retransmit interval, until receive returns true or an error, or ctx ends.
func repeat(
	ctx context.Context, c interface{ SetReadDeadline(time.Time) error }, send func() error, receive func() (bool, error),
) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := send(); err != nil {
			return err
		}
		until := time.Now().Add(retransmit)
		if d, ok := ctx.Deadline(); ok && d.Before(until) {
			until = d
		}
		_ = c.SetReadDeadline(until)
		for {
			done, err := receive()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if done || err != nil {
				return err
			}
		}
	}
}

func checkReply(reply, name string) error {
	from, rest, _ := strings.Cut(reply, " ")
	if rest != request {
		return fmt.Errorf("unexpected reply %q", reply)
	}
	if from != name {
		return fmt.Errorf("reply from %s", from)
	}
	return nil
}

// shortError removes what the report contains already from an error: addresses and the operation.
func shortError(err error) error {
	var syscall *os.SyscallError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("no reply")
	case errors.As(err, &syscall):
		return syscall.Err
	}
	return err
}
