// SPDX-License-Identifier: Apache-2.0

package model

import "fmt"

// Code is a CNI error code (SPEC section 5, "Error").
type Code uint

// The codes of the specification.
const (
	CodeIncompatibleVersion Code = 1
	CodeUnsupportedField    Code = 2
	CodeUnknownContainer    Code = 3
	CodeInvalidEnv          Code = 4
	CodeIO                  Code = 5
	CodeDecode              Code = 6
	CodeInvalidConf         Code = 7
	CodeInvalidNetns        Code = 8
	CodeTryAgain            Code = 11
	CodeNotAvailable        Code = 50
	CodeLimited             Code = 51
	CodeInternal            Code = 999

	// Weft's own codes.
	CodeExists    Code = 100 // the interface already exists
	CodeExhausted Code = 101 // no address is free
	CodeDiffers   Code = 102 // CHECK found the kernel different from the plan
	CodeForeign   Code = 103 // a foreign plugin failed without a code
	CodeInUse     Code = 104 // another attachment uses the host port, or the MAC address on the master; another host has the address
)

// Error is an error with a CNI code, a message that names field and value, and a hint how to fix it.
type Error struct {
	Code Code
	// Msg describes the error and names field and value.
	Msg string
	// Hint is how to fix it; may be empty.
	Hint string
	Err  error // the cause, may be nil
}

// Errorf returns an Error with a formatted message; %w is supported.
func Errorf(code Code, hint, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Msg: err.Error(), Hint: hint, Err: err}
}

// Error returns the message and the hint.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Msg
	}
	return e.Msg + " (" + e.Hint + ")"
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Warning is a problem of a valid configuration: a setting without effect, or two that contradict each other.
type Warning struct {
	Field string `json:"field"`
	Msg   string `json:"message"`
	Hint  string `json:"hint,omitempty"`
}
