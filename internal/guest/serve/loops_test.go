// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// flood is the socket of a guest that sends packets without a pause; each write to it fails.
type flood struct {
	net.PacketConn
	left int
}

func (f *flood) ReadFrom(b []byte) (int, net.Addr, error) {
	if f.left == 0 {
		return 0, nil, io.EOF
	}
	f.left--
	return len(b), &net.UDPAddr{}, nil
}

func (f *flood) WriteTo(_ []byte, to net.Addr) (int, error) {
	reason := syscall.EPERM
	if to.(*net.UDPAddr).Port == 0 {
		reason = syscall.EINVAL
	}
	return 0, fmt.Errorf("to %s: %w", to, reason)
}

// TestFlood: packets of a guest that floods the socket are read at a limited rate, and each errno is logged once.
func TestFlood(t *testing.T) {
	const packets = 50
	var log bytes.Buffer
	f := &flood{left: packets}
	out := newSender(f, slog.New(slog.NewTextHandler(&log, nil)), "answer")
	begun, port := time.Now(), 0
	err := read(f, func([]byte, net.Addr) {
		out.send(nil, &net.UDPAddr{IP: net.IPv4bcast, Port: port})
		port++
	})
	if took := time.Since(begun); !errors.Is(err, io.EOF) || took < packets*pace {
		t.Errorf("%d packets in %s: %v", packets, took, err)
	}
	if logged := strings.Count(log.String(), "answer not sent"); logged != 2 {
		t.Errorf("logged %d times:\n%s", logged, &log)
	}
}
