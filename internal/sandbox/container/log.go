// SPDX-License-Identifier: Apache-2.0

package container

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// maxLine is the maximum length of a log line. A longer line of the container is split; all parts but the last are tagged
// P.
const maxLine = 16 << 10

// logFile is a log in the CRI format: TIME stdout|stderr F|P TEXT.
type logFile struct {
	mu sync.Mutex
	w  io.Writer
}

func openLog(path string) (*logFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	return &logFile{w: f}, nil
}

// follow logs both streams until they end, and closes the channel then.
func (l *logFile) follow(stdout, stderr io.Reader) <-chan struct{} {
	var both sync.WaitGroup
	both.Go(func() { l.copy("stdout", stdout) })
	both.Go(func() { l.copy("stderr", stderr) })
	done := make(chan struct{})
	go func() { both.Wait(); close(done) }()
	return done
}

func (l *logFile) copy(stream string, r io.Reader) {
	in := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			l.write(stream, line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// write writes one line with one system call. If the disk is full, the line is lost; the container continues.
func (l *logFile) write(stream string, line []byte) {
	tag := "P"
	if bytes.HasSuffix(line, []byte("\n")) {
		tag, line = "F", line[:len(line)-1]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.w.Write(fmt.Appendf(nil, "%s %s %s %s\n", time.Now().UTC().Format(time.RFC3339Nano), stream, tag, line))
}

// LogLine is one line of a log in the CRI format.
type LogLine struct {
	Time    time.Time
	Stream  string
	Partial bool
	Text    string
}

// ParseLogLine parses a line of a log, without its line feed.
func ParseLogLine(line string) (LogLine, error) {
	f := bytes.SplitN([]byte(line), []byte(" "), 4)
	if len(f) < 4 {
		return LogLine{}, fmt.Errorf("log line %.80q: want TIME STREAM TAG TEXT", line)
	}
	at, err := time.Parse(time.RFC3339Nano, string(f[0]))
	if err != nil {
		return LogLine{}, fmt.Errorf("log line %.80q: %w", line, err)
	}
	stream, tag := string(f[1]), string(f[2])
	if stream != "stdout" && stream != "stderr" {
		return LogLine{}, fmt.Errorf("log line %.80q: stream %q", line, stream)
	}
	tag, _, _ = cutTags(tag)
	return LogLine{Time: at, Stream: stream, Partial: tag == "P", Text: string(f[3])}, nil
}

// cutTags returns the first tag of "F:more:tags".
func cutTags(s string) (first, rest string, more bool) {
	if i := bytes.IndexByte([]byte(s), ':'); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}
