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
	CodeExists    Code = 100 // the interface exists already
	CodeExhausted Code = 101 // no address is free
	CodeDiffers   Code = 102 // CHECK found the kernel different from the plan
	CodeForeign   Code = 103 // a foreign plugin failed without a code
	CodeTaken     Code = 104 // another attachment has a port of the node, or the MAC upon a master
)

// Fault is an error a caller can act on: a CNI code, what is wrong (with field and value) and the way out.
type Fault struct {
	Code Code
	// Msg says what is wrong and names field and value.
	Msg string
	// Hint says how to put it right; may be empty.
	Hint string
	Err  error // the cause, may be nil
}

// Faultf makes a Fault; %w is understood.
func Faultf(code Code, hint, format string, args ...any) *Fault {
	err := fmt.Errorf(format, args...)
	return &Fault{Code: code, Msg: err.Error(), Hint: hint, Err: err}
}

// Error is the message and the way out.
func (f *Fault) Error() string {
	if f.Hint == "" {
		return f.Msg
	}
	return f.Msg + " (" + f.Hint + ")"
}

// Unwrap is the cause.
func (f *Fault) Unwrap() error { return f.Err }

// Doubt is something in a configuration that is allowed and hardly meant: a setting without effect, two that
// contradict each other.
type Doubt struct {
	Field string `json:"field"`
	Msg   string `json:"message"`
	Hint  string `json:"hint,omitempty"`
}
