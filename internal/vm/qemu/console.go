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

// Console is a machine's serial console, for programs: what is awaited is looked for in all that was said since the
// machine began. Of a guest of weft's own (vm/guestimage) it runs commands.
type Console struct {
	conn net.Conn
	log  string
	one  sync.Mutex // a command at a time
	last int

	mu    sync.Mutex
	heard bytes.Buffer
}

// OpenConsole connects to the console of the machine in a directory. One connection is served at a time.
func OpenConsole(ctx context.Context, dir string) (*Console, error) {
	conn, err := DialConsole(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	c := &Console{conn: conn, log: ConsoleLog(dir)}
	go func() { _, _ = io.Copy(c, conn) }()
	return c, nil
}

// Write takes what the machine says.
func (c *Console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard.Write(b)
}

// Close hangs up.
func (c *Console) Close() { _ = c.conn.Close() }

// Said is all that the console has said. Where somebody listened slowly, QEMU has written a letter twice now and then.
func (c *Console) Said() string {
	b, _ := os.ReadFile(c.log)
	return strings.ReplaceAll(string(b), "\r", "")
}

// Heard is what it has said since this connection began, to the letter.
func (c *Console) Heard() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.ReplaceAll(c.heard.String(), "\r", "")
}

// Await waits until a whole line begins with a text, and gives the line.
func (c *Console) Await(ctx context.Context, prefix string) (string, error) {
	return c.await(ctx, prefix, c.Heard, c.Said)
}

func (c *Console) await(ctx context.Context, prefix string, where ...func() string) (string, error) {
	for {
		for _, said := range where {
			if line, ok := find(said(), prefix); ok {
				return line, nil
			}
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("console: %q was not said: %w; the last words: %s", prefix, ctx.Err(), tail(c.Said()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// find finds a whole line that begins with a text, or with a prompt and the text.
func find(said, prefix string) (string, bool) {
	for line := range strings.Lines(said) {
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

// errCommand is a command of the guest that failed.
var errCommand = errors.New("the guest's command failed")

// Run has the guest do a command of its shell, and gives what that printed. One runs at a time.
func (c *Console) Run(ctx context.Context, command string) (string, error) {
	c.one.Lock()
	defer c.one.Unlock()
	c.last++
	id := fmt.Sprintf("%d.%d", os.Getpid(), c.last)
	if _, err := fmt.Fprintf(c.conn, "@%s %s\n", id, command); err != nil {
		return "", fmt.Errorf("console: %w", err)
	}
	end, err := c.await(ctx, "weft-guest: END "+id+" ", c.Heard) // the log may have it before this connection has
	if err != nil {
		return "", err
	}
	_, out, _ := strings.Cut(c.Heard(), "weft-guest: BEGIN "+id+"\n")
	out, _, _ = strings.Cut(out, "weft-guest: END "+id+" ")
	if !strings.HasSuffix(end, " 0") {
		return out, fmt.Errorf("%w: %s: %s: %s", errCommand, command, end[strings.LastIndexByte(end, ' ')+1:],
			strings.TrimSpace(out))
	}
	return out, nil
}
