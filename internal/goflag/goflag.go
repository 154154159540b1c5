// SPDX-License-Identifier: Apache-2.0

// Package goflag translates the errors of package flag, which name Go's types and have no hint, to the terms of a command
// line. It is for the programs whose flags have one dash.
package goflag

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// Error translates an error of flags.Parse; package flag has no types for its errors. command is the command line for the
// hint.
func Error(command string, flags *flag.FlagSet, err error) error {
	help := fmt.Sprintf("`%s --help` lists the flags", command)
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: "); ok {
		return misuse(help, "unknown flag %s", name)
	}
	if name, ok := strings.CutPrefix(text, "flag needs an argument: "); ok {
		return misuse(example(flags.Lookup(strings.TrimLeft(name, "-")), help), "%s has no value", name)
	}
	m := regexp.MustCompile(`^invalid (?:boolean )?value (".*") for (?:flag )?(-[^ ]+): (.*)$`).FindStringSubmatch(text)
	if m == nil {
		if name, ok := strings.CutPrefix(text, "bad flag syntax: "); ok {
			return misuse(help, "%q is not a flag", name)
		}
		return model.Errorf(model.CodeInvalidConf, help, "%w", err)
	}
	value, name, cause := m[1], m[2], m[3]
	f := flags.Lookup(strings.TrimLeft(name, "-"))
	hint := example(f, help)
	switch cause {
	case "parse error":
		return misuse(hint, "%s %s is not %s", name, value, Kind(f))
	case "value out of range":
		return misuse(hint, "%s %s is out of range", name, value)
	}
	return misuse(hint, "%s %s: %s", name, value, cause)
}

// Message returns an error and, on a second line, its hint.
func Message(err error) string {
	msg := err.Error()
	var fault *model.Error
	if errors.As(err, &fault) && fault.Hint != "" {
		return strings.TrimSuffix(msg, " ("+fault.Hint+")") + "\nhint: " + fault.Hint
	}
	return msg
}

func misuse(hint, format string, args ...any) error {
	return model.Errorf(model.CodeInvalidConf, hint, format, args...)
}

// example returns the flag with its default, or otherwise if it has none.
func example(f *flag.Flag, otherwise string) string {
	if f == nil || f.DefValue == "" {
		return otherwise
	}
	if isBool(f) {
		return "for example -" + f.Name + "=true"
	}
	return "for example -" + f.Name + " " + f.DefValue
}

func isBool(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// Kind describes the values of a flag: "a whole number".
func Kind(f *flag.Flag) string {
	if f == nil {
		return "a valid value"
	}
	if isBool(f) {
		return "true or false"
	}
	if getter, ok := f.Value.(flag.Getter); ok {
		switch getter.Get().(type) {
		case time.Duration:
			return "a duration with a unit (ms, s, m or h)"
		case int, int64:
			return "a whole number"
		case uint, uint64:
			return "a whole number, 0 or more"
		case float64:
			return "a number"
		}
	}
	return "a valid value"
}
