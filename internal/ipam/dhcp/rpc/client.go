// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
)

// Client is a connection to a daemon, for one call.
type Client struct {
	conn *os.File
	r    *bufio.Reader
}

// busyStep is the pause before the client retries a daemon whose queue is full.
const busyStep = 10 * time.Millisecond

// Dial connects to the daemon at a socket.
func Dial(ctx context.Context, socket string) (*Client, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	for err = unix.EAGAIN; errors.Is(err, unix.EAGAIN) && ctx.Err() == nil; {
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); errors.Is(err, unix.EAGAIN) {
			time.Sleep(busyStep)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	c := &Client{conn: os.NewFile(uintptr(fd), socket)}
	c.r = bufio.NewReader(io.LimitReader(c.conn, MaxMessage))
	stop := c.until(ctx)
	defer stop()
	if err := c.shake(); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// until ends the connection when ctx ends.
func (c *Client) until(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
}

func (c *Client) shake() error {
	if _, err := c.conn.WriteString(Connect); err != nil {
		return err
	}
	for first := true; ; first = false {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("no greeting: %w", err)
		}
		switch text := bytes.TrimSpace(line); {
		case first && !bytes.HasSuffix(text, []byte(Connected)):
			return fmt.Errorf("it is not a dhcp daemon: it sent %q", text)
		case len(text) == 0:
			return nil
		}
	}
}

// Call calls a method. The result is empty unless the method is Allocate.
func (c *Client) Call(ctx context.Context, method string, args Args) (model.Result, error) {
	stop := c.until(ctx)
	defer stop()
	r, err := c.call(method, args)
	if err != nil && ctx.Err() != nil {
		return r, fmt.Errorf("dhcp daemon: %s: %w: %w", method, context.Cause(ctx), err)
	}
	return r, err
}

func (c *Client) call(method string, args Args) (model.Result, error) {
	var none model.Result
	var message bytes.Buffer
	enc := gob.NewEncoder(&message)
	err := errors.Join(enc.Encode(Request{ServiceMethod: method, Seq: 1}), enc.Encode(args))
	if err == nil {
		_, err = c.conn.Write(message.Bytes())
	}
	if err != nil {
		return none, fmt.Errorf("dhcp daemon: %s: %w", method, err)
	}
	return answer(c.r, method)
}

// answer reads the daemon's response to a call.
func answer(r *bufio.Reader, method string) (model.Result, error) {
	var none model.Result
	in := gob.NewDecoder(r)
	var head Response
	if err := in.Decode(&head); err != nil {
		return none, fmt.Errorf("dhcp daemon: %s: %w", method, err)
	}
	switch {
	case strings.HasPrefix(head.Error, "rpc: can't find"):
		return none, fmt.Errorf("%s: %w", method, ErrNoMethod)
	case head.Error != "":
		return none, fmt.Errorf("%w: %s", ErrDaemon, head.Error)
	}
	var reply Reply
	if err := in.Decode(&reply); err != nil {
		return none, fmt.Errorf("dhcp daemon: %s: %w", method, err)
	}
	return reply.Result()
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }
