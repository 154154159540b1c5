// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/ipam/dhcp/rpc"
)

// handshakeTimeout is how long a caller may take for its request.
const handshakeTimeout = 10 * time.Second

// handler answers one call. What it returns is sent as the reply; nil is the empty one. Its context ends when the
// caller goes away.
type handler func(ctx context.Context, method string, args rpc.Args) (reply any, err error)

// errUnknown is a handler's word for a method that it does not have.
var errUnknown = errors.New("unknown method")

// serveConn serves one connection until it closes or ctx ends. Its calls run concurrently.
func serveConn(ctx context.Context, conn net.Conn, handle handler) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var calls sync.WaitGroup
	defer func() { cancel(); calls.Wait(); _ = conn.Close() }()
	limit := &io.LimitedReader{R: conn, N: rpc.MaxMessage}
	r := bufio.NewReader(limit)
	late := time.AfterFunc(handshakeTimeout, func() { _ = conn.Close() })
	if err := handshake(conn, r); !late.Stop() || err != nil {
		return
	}
	a := &answers{out: bufio.NewWriter(conn)}
	a.enc = gob.NewEncoder(a.out)
	in := gob.NewDecoder(r)
	for {
		limit.N = rpc.MaxMessage
		var q rpc.Request
		var args rpc.Args
		if in.Decode(&q) != nil || in.Decode(&args) != nil {
			return
		}
		calls.Add(1)
		go func() {
			defer calls.Done()
			reply, err := handle(ctx, q.ServiceMethod, args)
			if errors.Is(err, errUnknown) {
				err = errors.New(rpc.NoMethod + q.ServiceMethod)
			}
			a.send(q, reply, err)
		}()
	}
}

// handshake reads the request's line and headers, and answers.
func handshake(conn net.Conn, r *bufio.Reader) error {
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		switch text := strings.TrimSpace(string(line)); {
		case first && !strings.HasPrefix(text, "CONNECT "):
			_, _ = conn.Write([]byte("HTTP/1.0 405 Method Not Allowed\n\n405 must CONNECT\n"))
			return errors.New("no CONNECT")
		case text == "":
			_, err := conn.Write([]byte("HTTP/1.0 " + rpc.Connected + "\n\n"))
			return err
		}
	}
}

// answers writes the answers of a connection one at a time.
type answers struct {
	mu  sync.Mutex
	out *bufio.Writer
	enc *gob.Encoder
}

// send writes an answer. A caller that does not take it is found out by the next read.
func (a *answers) send(q rpc.Request, reply any, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	head := rpc.Response{ServiceMethod: q.ServiceMethod, Seq: q.Seq}
	if err != nil {
		head.Error = err.Error()
	}
	if err != nil || reply == nil {
		reply = struct{}{}
	}
	_ = errors.Join(a.enc.Encode(head), a.enc.Encode(reply), a.out.Flush())
}
