// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/model"
)

// ShimConfig configures Shim.
type ShimConfig struct {
	Shim  string // weft-cni
	Empty string // an empty static Go program
	N     int    // runs per program
	Seed  uint64
}

// Shim measures weft-cni from fork to exit, with an agent that responds immediately, compared with an empty static Go
// program.
func Shim(ctx context.Context, cfg ShimConfig) (Report, error) {
	for _, file := range []string{cfg.Shim, cfg.Empty} {
		if _, err := os.Stat(file); err != nil {
			return Report{}, model.Errorf(model.CodeIO, "run make build", "program %s is missing", file)
		}
	}
	dir, err := os.MkdirTemp("", "weft-bench-")
	if err != nil {
		return Report{}, fmt.Errorf("bench: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "agent.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return Report{}, fmt.Errorf("bench: %w", err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		respondImmediately(listener)
	}()
	defer func() {
		_ = listener.Close()
		<-served
	}()
	return runShim(ctx, cfg, socket)
}

func runShim(ctx context.Context, cfg ShimConfig, socket string) (Report, error) {
	conf := []byte(`{"cniVersion":"1.0.0","name":"bench","type":"weft-cni","socket":"` + socket + `","delegates":[{}]}`)
	env := []string{
		"CNI_COMMAND=ADD", "CNI_CONTAINERID=bench", "CNI_NETNS=/proc/self/ns/net", "CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin",
		"CNI_ARGS=IgnoreUnknown=1",
	}
	programs := []struct{ name, file string }{{"empty", cfg.Empty}, {"weft-cni", cfg.Shim}}
	s := newSamples()
	cell := Cell{Concurrency: 1}
	order := rand.New(rand.NewPCG(cfg.Seed, 0))
	for range cfg.N {
		for _, i := range order.Perm(len(programs)) {
			cmd := exec.CommandContext(ctx, programs[i].file)
			var out bytes.Buffer
			cmd.Env, cmd.Stdin, cmd.Stdout = env, bytes.NewReader(conf), &out
			start := time.Now()
			if err := cmd.Run(); err != nil {
				return Report{}, fmt.Errorf("bench: %s: %w: %s", programs[i].name, err, out.String())
			}
			s.add(programs[i].name, cell, "run", "ms", float64(time.Since(start))/millis)
		}
	}
	rows := s.rows(Chain{Name: "shim"}, []string{"empty", "weft-cni"})
	return Report{Rows: rows, Ratios: ratios(rows, func(impl string) bool { return impl == "empty" })}, nil
}

// respondImmediately is an agent that does nothing; it returns when the listener is closed.
func respondImmediately(l *net.UnixListener) {
	answer := wire.AppendAnswer(nil, 0, []byte("{\"cniVersion\":\"1.0.0\"}\n"))
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, fds, err := readRequest(c)
		closeFDs(fds)
		if err == nil {
			_, _ = c.Write(answer)
		}
		_ = c.Close()
	}
}

// readRequest reads a call, with the descriptors that come with it.
func readRequest(c *net.UnixConn) (r wire.Request, fds []int, err error) {
	buf, oob := make([]byte, 64<<10), make([]byte, 64)
	n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return r, nil, err
	}
	fds = rights(oob[:oobn])
	h, err := wire.ParseHeader(buf[:n])
	if err != nil {
		return r, fds, err
	}
	if h.Size() > len(buf) {
		return r, fds, errors.New("request is larger than the bench sends")
	}
	if _, err = io.ReadFull(c, buf[n:h.Size()]); err != nil {
		return r, fds, err
	}
	r, err = wire.ParseRequest(buf[:h.Size()])
	return r, fds, err
}
