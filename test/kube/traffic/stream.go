// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Stream is the state of one TCP connection to the peer, which is never reopened.
type Stream struct {
	Answers  uint64 `json:"answers"`  // echoed numbers
	Error    string `json:"error"`    // why it was closed or not opened
	GapMicro int64  `json:"gapMicro"` // the longest wait for an echo
}

// stream sends a number and waits for its echo, a hundred times per second.
type stream struct {
	ctx context.Context
	mu  sync.Mutex
	r   Stream
}

func (s *stream) report() Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.r
}

// begin connects to the address in the request's body.
func (s *stream) begin(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 256))
	conn, err := net.DialTimeout("tcp", string(body), 5*time.Second)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	go func() {
		err := s.run(conn)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.r.Error = fmt.Sprint(err); err == nil {
			s.r.Error = "it ended"
		}
	}()
}

func (s *stream) run(conn net.Conn) error {
	defer context.AfterFunc(s.ctx, func() { _ = conn.Close() })()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for number := uint64(1); ; number++ {
		<-tick.C
		var out, back [8]byte
		binary.BigEndian.PutUint64(out[:], number)
		asked := time.Now()
		if _, err := conn.Write(out[:]); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, back[:]); err != nil {
			return err
		}
		if back != out {
			return fmt.Errorf("%x came back for %x", back, out)
		}
		s.mu.Lock()
		s.r.Answers, s.r.GapMicro = number, max(s.r.GapMicro, time.Since(asked).Microseconds())
		s.mu.Unlock()
	}
}

// echo echoes what each connection sends.
func echo(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			continue
		}
		go func() {
			defer func() { _ = conn.Close() }()
			_, _ = io.Copy(conn, conn)
		}()
	}
}
