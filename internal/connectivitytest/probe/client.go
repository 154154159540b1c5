// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// again is the time after which a datagram or an echo request is sent again: one may be lost while the kernel
// resolves its neighbor.
const again = 300 * time.Millisecond

// errMismatch: the answer is not what was sent.
var errMismatch = errors.New("the answer differs from what was sent")

// Run runs probes at the same time, and returns their results in the same order.
func Run(ctx context.Context, probes []Probe) []Result {
	out := make([]Result, len(probes))
	var wg sync.WaitGroup
	for i, p := range probes {
		wg.Go(func() { out[i] = p.run(ctx) })
	}
	wg.Wait()
	return out
}

func (p Probe) run(ctx context.Context) Result {
	limit := time.Duration(p.Millis) * time.Millisecond
	if p.Kind == Flow {
		limit += 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begun := time.Now()
	var r Result
	var err error
	switch p.Kind {
	case TCP:
		err = p.tcp(ctx, &r)
	case UDP, Fragments:
		err = p.udp(ctx, &r)
	case ICMP:
		err = p.icmp(ctx)
	case Transfer:
		err = p.transfer(ctx)
	case MTU:
		err = p.mtu(ctx, &r)
	case Spoof:
		err = p.spoof(ctx)
	case Flow:
		err = p.flow(ctx, &r)
	case Lines:
		err = p.lines(ctx, &r)
	case LinesBegun:
		err = p.linesBegun(ctx)
	case LinesEnd:
		err = p.linesEnd(ctx)
	case Connect:
		var c net.Conn
		if c, err = p.dial(ctx, "tcp"); err == nil {
			_ = c.Close()
		}
	case DNS:
		_, err = net.DefaultResolver.LookupHost(ctx, p.To)
	default:
		err = fmt.Errorf("kind %q of a probe is unknown", p.Kind)
	}
	r.Micros = time.Since(begun).Microseconds()
	r.State = Answered
	if err != nil {
		r.State, r.Error = stateOf(err), err.Error()
	}
	return r
}

// stateOf distinguishes the network's silence from other errors. A refused connection is an answer, but not that of the server.
func stateOf(err error) State {
	for _, silent := range []error{
		context.DeadlineExceeded, os.ErrDeadlineExceeded, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EACCES,
		unix.ETIMEDOUT, errNone,
	} {
		if errors.Is(err, silent) {
			return Silent
		}
	}
	return Failed
}

func (p Probe) dial(ctx context.Context, network string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, p.To)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	if end, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(end)
	}
	return c, nil
}

func (p Probe) tcp(ctx context.Context, r *Result) error {
	line, err := p.request(ctx, wordHello)
	r.Server, r.Source, _ = strings.Cut(line, " ")
	return err
}

// request sends a line and returns the line of the answer.
func (p Probe) request(ctx context.Context, line string) (string, error) {
	c, err := p.dial(ctx, "tcp")
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		return "", fmt.Errorf("request: %w", err)
	}
	answer, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("answer: %w", err)
	}
	return strings.TrimSuffix(answer, "\n"), nil
}

// udp sends a datagram until it is answered.
func (p Probe) udp(ctx context.Context, r *Result) error {
	c, err := p.dial(ctx, "udp")
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	request := make([]byte, max(p.Size, headerSize))
	_, _ = rand.Read(request[headerSize:]) // never fails (crypto/rand)
	cookie := newCookie()
	copy(request, wordAsk+" "+cookie)
	buf := make([]byte, 64<<10)
	return repeat(ctx, c, request, func() (done bool, err error) {
		n, err := c.Read(buf)
		if err != nil || n < headerSize {
			return false, err
		}
		words := strings.Fields(string(bytes.TrimRight(buf[:headerSize], "\x00")))
		if len(words) != 4 || words[0] != wordAnswer || words[1] != cookie {
			return false, nil
		}
		if !bytes.Equal(buf[headerSize:n], request[headerSize:]) {
			return true, errMismatch
		}
		r.Server, r.Source = words[2], words[3]
		return true, nil
	})
}

// repeat sends until read is done, and every time that nothing came for a while.
func repeat(ctx context.Context, c net.Conn, request []byte, read func() (done bool, err error)) error {
	end, _ := ctx.Deadline()
	var said error
	for {
		if time.Now().After(end) || ctx.Err() != nil {
			return errors.Join(errNone, said)
		}
		_ = c.SetDeadline(end)
		if _, err := c.Write(request); err != nil {
			if errors.Is(err, unix.EPERM) { // a packet filter of this host dropped it
				err = fmt.Errorf("%w: %w", errNone, err)
			}
			if !errors.Is(err, unix.ECONNREFUSED) { // of an earlier datagram
				return fmt.Errorf("send: %w", err)
			}
		}
		next := time.Now().Add(again)
		if next.After(end) {
			next = end
		}
		done, err := readUntil(ctx, c, next, read)
		if done {
			return err
		}
		if err != nil {
			said = err
		}
	}
}

// readUntil reads until read is done, or the time has come. An ICMP error, which it returns, is not the end: the answer
// may still come.
func readUntil(
	ctx context.Context, c net.Conn, end time.Time, read func() (done bool, err error),
) (done bool, err error) {
	_ = c.SetReadDeadline(end)
	for {
		done, err = read()
		switch {
		case done:
			return true, err
		case errors.Is(err, os.ErrDeadlineExceeded):
			return false, nil
		case err != nil:
			select {
			case <-time.After(time.Until(end)):
			case <-ctx.Done():
			}
			return false, err
		}
	}
}

// errNone: nothing came back.
var errNone = errors.New("no answer")

func newCookie() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// transfer sends bytes and compares what comes back.
func (p Probe) transfer(ctx context.Context) error {
	c, err := p.dial(ctx, "tcp")
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	sent := make([]byte, p.Size)
	_, _ = rand.Read(sent) // never fails (crypto/rand)
	written := make(chan error, 1)
	go func() {
		_, err := io.WriteString(c, wordEcho+"\n")
		if err == nil {
			_, err = c.Write(sent)
		}
		written <- err
	}()
	got := make([]byte, p.Size)
	n, err := io.ReadFull(c, got)
	if err != nil {
		_ = c.Close()
		<-written
		return fmt.Errorf("after %d of %d bytes: %w", n, p.Size, err)
	}
	if err := <-written; err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if !bytes.Equal(sent, got) {
		return errMismatch
	}
	return nil
}
