// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// Console is a VM's serial console, for programs. It searches all output since the VM started. In a guest of package
// guestimage it runs commands.
type Console struct {
	conn    net.Conn
	log     string
	running sync.Mutex // serializes commands
	last    int

	mu       sync.Mutex
	received bytes.Buffer
}

// OpenConsole connects to the console of the VM in a directory. QEMU serves one connection at a time.
func OpenConsole(ctx context.Context, dir string) (*Console, error) {
	conn, err := DialConsole(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	c := &Console{conn: conn, log: ConsoleLog(dir)}
	go func() { _, _ = io.Copy(c, conn) }()
	return c, nil
}

// Write receives output of the VM.
func (c *Console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.received.Write(b)
}

// Close closes the connection.
func (c *Console) Close() { _ = c.conn.Close() }

// Log returns all output of the console. QEMU may have written a byte twice if a client read slowly.
func (c *Console) Log() string {
	b, _ := os.ReadFile(c.log)
	return strings.ReplaceAll(string(b), "\r", "")
}

// Received returns the output since this connection began, exactly.
func (c *Console) Received() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.ReplaceAll(c.received.String(), "\r", "")
}

// Await waits for a complete line with a prefix, and returns the line.
func (c *Console) Await(ctx context.Context, prefix string) (string, error) {
	return c.await(ctx, prefix, c.Received, c.Log)
}

func (c *Console) await(ctx context.Context, prefix string, where ...func() string) (string, error) {
	for {
		for _, output := range where {
			if line, ok := findLine(output(), prefix); ok {
				return line, nil
			}
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("console: no line %q: %w; the last lines: %s", prefix, ctx.Err(), tail(c.Log()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// findLine finds a complete line with a prefix, with or without the prompt.
func findLine(output, prefix string) (string, bool) {
	for line := range strings.Lines(output) {
		rest := strings.TrimSpace(strings.TrimPrefix(line, prompt))
		if strings.HasSuffix(line, "\n") && strings.HasPrefix(rest, strings.TrimSpace(prefix)) {
			return rest, true
		}
	}
	return "", false
}

const prompt = "guest# "

func tail(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-6):], " / ")
}

// errCommand: a command in the guest failed.
var errCommand = errors.New("the guest's command failed")

// Run runs a shell command in the guest and returns its output. Commands are serialized.
func (c *Console) Run(ctx context.Context, command string) (string, error) {
	c.running.Lock()
	defer c.running.Unlock()
	c.last++
	id := fmt.Sprintf("%d.%d", os.Getpid(), c.last)
	if _, err := fmt.Fprintf(c.conn, "@%s %s\n", id, command); err != nil {
		return "", fmt.Errorf("console: %w", err)
	}
	end, err := c.await(ctx, "weft-guest: END "+id+" ", c.Received) // the log may have it earlier than this connection
	if err != nil {
		return "", err
	}
	_, out, _ := strings.Cut(c.Received(), "weft-guest: BEGIN "+id+"\n")
	out, _, _ = strings.Cut(out, "weft-guest: END "+id+" ")
	if !strings.HasSuffix(end, " 0") {
		return out, fmt.Errorf("%w: %s: %s: %s", errCommand, command, end[strings.LastIndexByte(end, ' ')+1:],
			strings.TrimSpace(out))
	}
	return out, nil
}
