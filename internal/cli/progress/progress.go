// SPDX-License-Identifier: Apache-2.0

// Package progress says on a terminal what a command waits for, if that takes long.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	// delay is how long a command may be silent before the line is shown.
	delay = 2 * time.Second
	// period is how often the line counts on.
	period = time.Second
	// erase moves to the start of the line and deletes it (ECMA-48).
	erase = "\r\x1b[K"
)

// Terminal reports whether a writer is a terminal, to which escape sequences may be written.
func Terminal(w io.Writer) bool {
	f, is := w.(*os.File)
	return is && term.IsTerminal(int(f.Fd()))
}

// Line is the last line of a terminal, which says what the command waits for. It is shown after two seconds and removed
// before anything else is written. Other output, such as a file or a log, never has it.
type Line struct {
	mu    sync.Mutex
	w     io.Writer
	what  string
	since time.Time
	shown bool
	// end ends the line; nil if w is no terminal.
	end, ended chan struct{}
}

// Start begins to wait for something, for example "waiting for the agents". Stop must be called.
func Start(w io.Writer, what string) *Line { return start(w, what, Terminal(w), delay, period) }

func start(w io.Writer, what string, terminal bool, delay, period time.Duration) *Line {
	l := &Line{w: w, what: what, since: time.Now()}
	if !terminal {
		return l
	}
	l.end, l.ended = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(l.ended)
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-l.end:
				return
			case <-tick.C:
				l.show(delay)
			}
		}
	}()
	return l
}

// show writes the line, if the command is silent for that time.
func (l *Line) show(delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := time.Since(l.since); d >= delay {
		l.shown = true
		fmt.Fprintf(l.w, "%sweft: %s (%ds)", erase, l.what, int(d.Seconds()))
	}
}

// eraseLocked removes the line.
func (l *Line) eraseLocked() {
	if l.shown {
		l.shown = false
		_, _ = io.WriteString(l.w, erase)
	}
}

// Set changes what the command waits for, and counts from now.
func (l *Line) Set(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.what, l.since = what, time.Now()
	l.eraseLocked()
}

// Write writes to the terminal without the line, which is shown again if nothing else follows.
func (l *Line) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.eraseLocked()
	return l.w.Write(p)
}

// Logf writes a message of its own line, and waits for what it says.
func (l *Line) Logf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	fmt.Fprintf(l, "weft: %s\n", text)
	l.Set(text)
}

// Stop removes the line. It may be called again.
func (l *Line) Stop() {
	if l.end == nil {
		return
	}
	close(l.end)
	<-l.ended
	l.end = nil
	l.mu.Lock()
	defer l.mu.Unlock()
	l.eraseLocked()
}
