// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Client is a connection to a daemon, for one call at a time.
type Client struct {
	conn net.Conn
	in   *gob.Decoder
	out  *gob.Encoder
	w    *bufio.Writer
	seq  uint64
}

// Dial connects to the daemon at a socket.
func Dial(ctx context.Context, socket string) (*Client, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	r := bufio.NewReader(conn)
	if err := shake(conn, r); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("socket %s: %w", socket, err)
	}
	w := bufio.NewWriter(conn)
	return &Client{conn: conn, in: gob.NewDecoder(r), out: gob.NewEncoder(w), w: w}, nil
}

func shake(conn net.Conn, r *bufio.Reader) error {
	if _, err := conn.Write([]byte(connect)); err != nil {
		return err
	}
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("no greeting: %w", err)
		}
		switch text := strings.TrimSpace(string(line)); {
		case first && !strings.HasSuffix(text, connected):
			return fmt.Errorf("no dhcp daemon: it says %q", text)
		case text == "":
			return nil
		}
	}
}

// Call calls a method. When ctx ends the connection is of no more use.
func (c *Client) Call(ctx context.Context, method string, args Args, reply any) error {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c.seq++
	var answer response
	err := errors.Join(c.out.Encode(request{method, c.seq}), c.out.Encode(args), c.w.Flush())
	if err == nil {
		err = c.in.Decode(&answer)
	}
	if err == nil && answer.Error != "" {
		_ = c.in.Decode(&struct{}{}) // what stands in the place of a reply
		if strings.Contains(answer.Error, "rpc: can't find") {
			return fmt.Errorf("%s: %w", method, ErrNoMethod)
		}
		return fmt.Errorf("%w: %s", ErrDaemon, answer.Error)
	}
	if err == nil {
		err = c.in.Decode(reply)
	}
	if err != nil {
		return fmt.Errorf("dhcp daemon: %s: %w", method, errors.Join(context.Cause(ctx), err))
	}
	return nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }
