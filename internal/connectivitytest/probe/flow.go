// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// flowPause is the time between two rounds of a flow.
const flowPause = 5 * time.Millisecond

// flow keeps a TCP connection and a stream of datagrams up for a time. A connection that breaks, and more than one
// datagram of a hundred without an answer, are errors.
func (p Probe) flow(ctx context.Context, r *Result) error {
	end := time.Now().Add(time.Duration(p.Millis) * time.Millisecond)
	datagrams := make(chan error, 1)
	var sent, answered int64
	go func() {
		var err error
		sent, answered, err = p.datagrams(ctx, end)
		datagrams <- err
	}()
	rounds, pause, err := p.rounds(ctx, end)
	err = errors.Join(err, <-datagrams)
	r.Detail = fmt.Sprintf("TCP: %d rounds, the longest pause %d ms; UDP: %d of %d datagrams not answered",
		rounds, pause.Milliseconds(), sent-answered, sent)
	switch {
	case err != nil:
		return err
	case (sent-answered)*100 > sent:
		return fmt.Errorf("%d of %d datagrams were not answered", sent-answered, sent)
	}
	return nil
}

// rounds sends a few bytes and reads them back, again and again, in one connection.
func (p Probe) rounds(ctx context.Context, end time.Time) (n int, longest time.Duration, err error) {
	c, err := p.dial(ctx, "tcp")
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, wordEcho+"\n"); err != nil {
		return 0, 0, fmt.Errorf("TCP: %w", err)
	}
	buf := make([]byte, 64)
	for time.Now().Before(end) {
		begun := time.Now()
		if _, err = c.Write(buf); err == nil {
			_, err = io.ReadFull(c, buf)
		}
		if err != nil {
			return n, longest, fmt.Errorf("TCP after %d rounds: %v", n, err) //nolint:errorlint // it broke: this is not silence
		}
		longest = max(longest, time.Since(begun))
		n++
		time.Sleep(flowPause)
	}
	return n, longest, nil
}

// datagrams counts the datagrams that are sent, and those that are answered.
func (p Probe) datagrams(ctx context.Context, end time.Time) (sent, answered int64, err error) {
	c, err := p.dial(ctx, "udp")
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = c.Close() }()
	cookie := newCookie()
	request := make([]byte, headerSize)
	copy(request, wordAsk+" "+cookie)
	var got atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, headerSize)
		for {
			n, err := c.Read(buf)
			switch {
			case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
				return
			case err == nil && strings.Contains(string(buf[:n]), cookie):
				got.Add(1)
			case err != nil:
				time.Sleep(flowPause) // an ICMP error
			}
		}
	}()
	for time.Now().Before(end) {
		if _, err := c.Write(request); err == nil {
			sent++
		}
		time.Sleep(flowPause)
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Second)) // for the last answers
	<-done
	return sent, got.Load(), nil
}
