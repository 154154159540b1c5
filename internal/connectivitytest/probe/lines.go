// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// wordTalk asks weft's guest for numbered lines, one each linePause.
	wordTalk  = "weft talk 10ms"
	linePause = 10 * time.Millisecond
	// regular is the number of lines in time after which a connection that was asked to end is as before, and late the pause
	// that is not in time. The host may be busy.
	regular = 20
	late    = 300 * time.Millisecond
)

// control is the name of the socket by which LinesBegun and LinesEnd find the Lines of their destination: it is of this
// network namespace.
func (p Probe) control() string { return "@weft-lines-" + p.To }

// lines keeps a connection on which only the server sends. A line that is missing, and a connection that breaks, are
// errors. The connection ends when LinesEnd asks for it and lines come in time again.
func (p Probe) lines(ctx context.Context, r *Result) error {
	c, err := p.dial(ctx, "tcp")
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, wordTalk+"\n"); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	in := bufio.NewReader(c)
	if err := expectLine(in, 0); err != nil {
		return err
	}
	asked, err := net.Listen("unix", p.control())
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	defer func() { _ = asked.Close() }()
	var end atomic.Bool
	go awaitEnd(asked, &end)

	last, longest, steady, n := time.Now(), time.Duration(0), 0, 1
	for ; !end.Load() || steady < regular; n++ {
		if err := expectLine(in, n); err != nil {
			return fmt.Errorf("after %d lines: %v", n, err) //nolint:errorlint // it broke: this is not silence
		}
		pause := time.Since(last)
		last, longest = time.Now(), max(longest, pause)
		if steady++; !end.Load() || pause > late {
			steady = 0
		}
	}
	r.PauseMillis = longest.Milliseconds()
	r.Detail = fmt.Sprintf("%d lines, the longest pause %d ms", n, r.PauseMillis)
	return nil
}

func expectLine(in *bufio.Reader, n int) error {
	line, err := in.ReadString('\n')
	if err != nil {
		return fmt.Errorf("line %d: %w", n, err)
	}
	if got := strings.TrimSpace(line); got != strconv.Itoa(n) {
		return fmt.Errorf("line %d is %q", n, got)
	}
	return nil
}

// awaitEnd reads words of LinesEnd.
func awaitEnd(asked net.Listener, end *atomic.Bool) {
	for {
		c, err := asked.Accept()
		if err != nil {
			return
		}
		word, err := io.ReadAll(io.LimitReader(c, 16))
		if err == nil && string(word) == wordEnd {
			end.Store(true)
		}
		_ = c.Close()
	}
}

// wordEnd asks Lines to end.
const wordEnd = "end"

// linesBegun waits until Lines to the same destination receives lines.
func (p Probe) linesBegun(ctx context.Context) error {
	c, err := p.dialControl(ctx)
	if err != nil {
		return err
	}
	return c.Close()
}

// linesEnd asks Lines to the same destination to end.
func (p Probe) linesEnd(ctx context.Context) error {
	c, err := p.dialControl(ctx)
	if err != nil {
		return err
	}
	_, err = io.WriteString(c, wordEnd)
	return errors.Join(err, c.Close())
}

// dialControl connects to the control socket, which is there when lines come.
func (p Probe) dialControl(ctx context.Context) (net.Conn, error) {
	for {
		c, err := new(net.Dialer).DialContext(ctx, "unix", p.control())
		if err == nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("no connection with lines: %w", err)
		case <-time.After(linePause):
		}
	}
}
