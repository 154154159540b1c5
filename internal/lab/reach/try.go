// SPDX-License-Identifier: Apache-2.0

package reach

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

// again is how long a lost packet is waited for before it is sent again.
const again = 250 * time.Millisecond

const question = "weft reach\n"

func tryTCP(ctx context.Context, from *netns.NS, to netip.AddrPort, name string) error {
	var c net.Conn
	// The socket must be made inside the namespace; the goroutine that net.Dialer starts only watches the context.
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
	if _, err := io.WriteString(c, question); err != nil {
		return err
	}
	answer, err := bufio.NewReader(io.LimitReader(c, 512)).ReadString('\n')
	if err != nil {
		return err
	}
	return checkAnswer(answer, name)
}

func tryUDP(ctx context.Context, from *netns.NS, to netip.AddrPort, name string) error {
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
		_, err := io.WriteString(c, question)
		return err
	}, func() (bool, error) {
		n, err := c.Read(buf)
		if err != nil {
			return false, err
		}
		return true, checkAnswer(string(buf[:n]), name)
	})
}

// repeat sends until receive says that it has what it waits for, again after each quiet spell, until ctx ends.
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
		until := time.Now().Add(again)
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

func checkAnswer(answer, name string) error {
	who, rest, _ := strings.Cut(answer, " ")
	if rest != question {
		return fmt.Errorf("answer %q makes no sense", answer)
	}
	if who != name {
		return fmt.Errorf("%s answered", who)
	}
	return nil
}

// tidy takes out of an error what the report says already: addresses and the operation.
func tidy(err error) error {
	var syscall *os.SyscallError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("no answer")
	case errors.As(err, &syscall):
		return syscall.Err
	}
	return err
}
