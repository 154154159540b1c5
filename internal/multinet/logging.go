// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
)

// LogLevel is a level of Multus' log; a higher one includes the lower ones.
type LogLevel int

// The levels. Multus' default is LogPanic, at which it logs no call.
const (
	LogPanic LogLevel = iota
	LogError
	LogVerbose
	LogDebug
)

// levelNames are the levels' names in the configuration and in the log.
func levelNames() []string { return []string{"panic", "error", "verbose", "debug"} }

// String returns the level as Multus writes it.
func (l LogLevel) String() string { return levelNames()[l] }

// ParseLogLevel parses a level without regard to case, as Multus does; ok is false if there is none of that name.
func ParseLogLevel(name string) (level LogLevel, ok bool) {
	for i, n := range levelNames() {
		if strings.EqualFold(n, name) {
			return LogLevel(i), true
		}
	}
	return LogPanic, false
}

// Logging is how Multus' configuration wants calls to be logged.
type Logging struct {
	Level LogLevel
	// File is where the agent sees the log; empty: none.
	File string
	// Stderr adds the lines to the agent's own log.
	Stderr bool
	// MaxAge is how many days rotated files are kept; 0: for ever.
	MaxAge int
	// MaxSize is the size in megabytes at which the file is rotated.
	MaxSize int
	// MaxBackups is how many rotated files are kept; 0: all.
	MaxBackups int
	// Compress compresses rotated files by gzip.
	Compress bool
}

// Multus' defaults of logOptions: days, megabytes, files.
const (
	defaultLogAge     = 5
	defaultLogSize    = 100
	defaultLogBackups = 5
)

// ParseLogging reads the keys for the log of a runtime's configuration. root is where the node's files are. It is apart
// from ParseSettings, because a call must not fail for its log. With an error the level and the file still count if they are valid.
func ParseLogging(conf []byte, root string) (Logging, error) {
	l := Logging{
		Stderr: true, MaxAge: defaultLogAge, MaxSize: defaultLogSize, MaxBackups: defaultLogBackups, Compress: true,
	}
	if !bytes.Contains(conf, []byte(`"logLevel"`)) { // the usual case, and without a level nothing is logged
		return l, nil
	}
	type options struct {
		MaxAge     *int  `json:"maxAge"`
		MaxSize    *int  `json:"maxSize"`
		MaxBackups *int  `json:"maxBackups"`
		Compress   *bool `json:"compress"`
	}
	var c struct {
		Level   string  `json:"logLevel"`
		File    string  `json:"logFile"`
		Stderr  *bool   `json:"logToStderr"`
		Options options `json:"logOptions"`
	}
	err := json.Unmarshal(conf, &c) // has filled in what it could
	if err != nil {
		err = fmt.Errorf("the keys for the log: %w", err)
		c.Stderr, c.Options = nil, options{} // a value of another type was set to zero
	}
	if c.Level != "" {
		level, ok := ParseLogLevel(c.Level)
		if !ok && err == nil {
			err = fmt.Errorf("logLevel: %q is none of %s", c.Level, strings.Join(levelNames(), ", "))
		}
		l.Level = level
	}
	number := func(key string, from *int, least int, to *int) {
		switch {
		case from == nil:
		case *from >= least:
			*to = *from
		case err == nil:
			err = fmt.Errorf("logOptions.%s: %d is less than %d", key, *from, least)
		}
	}
	number("maxAge", c.Options.MaxAge, 0, &l.MaxAge)
	number("maxSize", c.Options.MaxSize, 0, &l.MaxSize)
	number("maxBackups", c.Options.MaxBackups, 0, &l.MaxBackups)
	if l.MaxSize == 0 { // as Multus' library reads it
		l.MaxSize = defaultLogSize
	}
	if c.Options.Compress != nil {
		l.Compress = *c.Options.Compress
	}
	if c.Stderr != nil {
		l.Stderr = *c.Stderr
	}
	if c.File != "" {
		if !filepath.IsAbs(c.File) {
			if err == nil {
				err = fmt.Errorf("logFile: %q is not absolute", c.File)
			}
			return l, err
		}
		l.File = Settings{Root: root}.seen(c.File)
	}
	return l, err
}
