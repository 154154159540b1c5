// SPDX-License-Identifier: Apache-2.0

// Package multuslog writes the log file that Multus' configuration names: what each call did, in lines as Multus writes
// them, so that what reads that file continues to.
package multuslog

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/multinet"
)

// Log appends lines to files. A file that cannot be written fails nothing: the reason is logged once.
type Log struct {
	Log *slog.Logger
	Now func() time.Time

	mu   sync.Mutex
	said map[string]string // the last warning about each file, "" for the configuration
	// tidying are the files whose rotated ones are being compressed and deleted: false, or true if that must be done again.
	tidying map[string]bool
	work    sync.WaitGroup
}

// megabyte is the unit of logOptions.maxSize.
const megabyte = 1 << 20

// Write appends a line if the configuration's level includes it. The file is opened for each line: other programs may
// rotate it, too.
func (l *Log) Write(c multinet.Logging, level multinet.LogLevel, format string, args ...any) {
	if level > c.Level {
		return
	}
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", `\n`)
	if c.Stderr && level != multinet.LogError { // the agent logs every failure anyway
		l.Log.Info("as logToStderr says", "level", level.String(), "line", text)
	}
	if c.File == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.warnLocked(c.File, l.appendLocked(c, []byte(fmt.Sprintf("%s [%s] %s\n", l.Now().Format(time.RFC3339), level, text))))
}

// Problem logs once what is wrong with the configuration of a log.
func (l *Log) Problem(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.warnLocked("", err)
}

// warnLocked logs a failure, unless it is the one before.
func (l *Log) warnLocked(file string, err error) {
	if err == nil {
		delete(l.said, file)
		return
	}
	if l.said == nil || len(l.said) > 16 { // configurations do not name many files
		l.said = map[string]string{}
	}
	if text := err.Error(); l.said[file] != text {
		l.said[file] = text
		l.Log.Warn("log of Multus' configuration: lines are lost, calls are not", "file", file, "err", err)
	}
}

// appendLocked appends a line, and rotates the file before it if it would be too large.
func (l *Log) appendLocked(c multinet.Logging, line []byte) error {
	st, err := os.Stat(c.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(filepath.Dir(c.File), 0o755); err != nil {
			return err
		}
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return fmt.Errorf("logFile: %s is no regular file", c.File) // a pipe might block forever
	case st.Size() > 0 && st.Size()+int64(len(line)) > int64(c.MaxSize)*megabyte:
		if err := l.rotateLocked(c); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(c.File, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(line)
	return errors.Join(err, f.Close())
}

// stamp is the time in the name of a rotated file, as Multus' library writes it.
const stamp = "2006-01-02T15-04-05.000"

const gzSuffix = ".gz"

// rotateLocked renames the file by the time, as "multus-2026-01-02T15-04-05.000.log", and then compresses and removes
// rotated files as the options say. Those that Multus has left count, too.
func (l *Log) rotateLocked(c multinet.Logging) error {
	ext := filepath.Ext(c.File)
	base := strings.TrimSuffix(c.File, ext) + "-"
	if err := atomicfile.Link(c.File, base+l.Now().UTC().Format(stamp)+ext, atomicfile.CrashSafe); err != nil {
		return err
	}
	if err := os.Remove(c.File); err != nil {
		return err
	}
	if _, running := l.tidying[c.File]; running {
		l.tidying[c.File] = true
		return nil
	}
	if l.tidying == nil {
		l.tidying = map[string]bool{}
	}
	l.tidying[c.File] = false
	l.work.Go(func() { l.tidy(c, base, ext) })
	return nil
}

// Wait waits until rotated files are compressed and deleted.
func (l *Log) Wait() { l.work.Wait() }

// tidy compresses and deletes rotated files in the background: a call must not wait for the compression of a hundred
// megabytes.
func (l *Log) tidy(c multinet.Logging, base, ext string) {
	for {
		err := l.tidyOnce(c, base, ext)
		l.mu.Lock()
		again := l.tidying[c.File]
		if l.tidying[c.File] = false; !again {
			delete(l.tidying, c.File)
		}
		if err != nil {
			l.warnLocked(c.File, err)
		}
		l.mu.Unlock()
		if !again {
			return
		}
	}
}

func (l *Log) tidyOnce(c multinet.Logging, base, ext string) error {
	entries, err := os.ReadDir(filepath.Dir(c.File))
	if err != nil {
		return err
	}
	type backup struct {
		path string
		at   time.Time
	}
	var all []backup
	for _, e := range entries {
		path := filepath.Join(filepath.Dir(c.File), e.Name())
		rest, ours := strings.CutPrefix(path, base)
		rest, ends := strings.CutSuffix(strings.TrimSuffix(rest, gzSuffix), ext)
		at, err := time.Parse(stamp, rest)
		if ours && ends && err == nil && e.Type().IsRegular() {
			all = append(all, backup{path, at})
		}
	}
	slices.SortFunc(all, func(a, b backup) int { return b.at.Compare(a.at) })
	var errs []error
	for i, b := range all {
		switch {
		case c.MaxBackups > 0 && i >= c.MaxBackups, c.MaxAge > 0 && l.Now().Sub(b.at) > time.Duration(c.MaxAge)*24*time.Hour:
			errs = append(errs, os.Remove(b.path))
		case c.Compress && !strings.HasSuffix(b.path, gzSuffix):
			errs = append(errs, compress(b.path))
		}
	}
	return errors.Join(errs...)
}

// compress replaces a file by a compressed one.
func compress(path string) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	err = atomicfile.WriteFrom(path+gzSuffix, func(to io.Writer) error {
		z, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
		if err != nil {
			return err
		}
		_, err = io.Copy(z, from)
		return errors.Join(err, z.Close())
	}, 0o600, atomicfile.CrashSafe)
	if err != nil {
		return err
	}
	return os.Remove(path)
}
