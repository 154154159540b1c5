// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"errors"
	"fmt"
	"unicode"

	"github.com/weft-net/weft/internal/model"
)

// The longest name of an interface that the kernel takes.
const maxIfName = 15

// CheckIfName returns an error if s is no valid interface name by the specification.
func CheckIfName(s string) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case len(s) > maxIfName:
		return fmt.Errorf("%q is too long: %d characters, at most %d", clip(s), len(s), maxIfName)
	case s == "." || s == "..":
		return fmt.Errorf("%q cannot be an interface's name", s)
	}
	for _, r := range s {
		if r == '/' || r == ':' || unicode.IsSpace(r) || r == 0 {
			return fmt.Errorf("%q contains %q; no '/', ':' or white space", clip(s), r)
		}
	}
	return nil
}

// CheckWord returns an error if s is no valid container id or network name: a letter or a digit, followed by letters,
// digits, '_', '.' and '-'.
func CheckWord(s string) error {
	if s == "" {
		return errors.New("is empty")
	}
	for i, c := range s {
		if !alnum(c) && (i == 0 || c != '_' && c != '.' && c != '-') {
			return fmt.Errorf("%q contains %q at %d; it begins with a letter or digit, then letters, digits, '_', '.', '-'",
				clip(s), c, i)
		}
	}
	const most = 255 // the longest file name; ids and names become file names
	if len(s) > most {
		return fmt.Errorf("%q is too long: %d characters, at most %d", clip(s), len(s), most)
	}
	return nil
}

// CheckType returns an error if s is no valid plugin type, which is the name of a program in a directory.
func CheckType(s string) error {
	if s == "" {
		return errors.New("is empty")
	}
	if s == "." || s == ".." || len(s) > 255 {
		return fmt.Errorf("%q cannot be a program's name", clip(s))
	}
	for _, r := range s {
		if r == '/' || r == '\\' || r == 0 {
			return fmt.Errorf("%q contains %q; a type is a program's name without a path", clip(s), r)
		}
	}
	return nil
}

func checkNetworkName(name string) error {
	if name == "" {
		return model.Errorf(model.CodeInvalidConf, `add "name"`, "network configuration: name is missing")
	}
	if err := CheckWord(name); err != nil {
		return model.Errorf(model.CodeInvalidConf, "", "network configuration: name %w", err)
	}
	return nil
}

func alnum(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
