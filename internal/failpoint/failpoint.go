// SPDX-License-Identifier: Apache-2.0

// Package failpoint lets a test stand at each moment at which a thing is done: it ends the process there, makes the
// thing fail, holds it up, or counts.
//
// A type whose work must be undone or taken up again after any fault has a Hook in its configuration, Step, and calls
// it before or after each thing that it does:
//
//	if err := cfg.Step.At("before save"); err != nil {
//		return err
//	}
//
// A program has none, so that a failpoint costs it a comparison with nil.
package failpoint

// Hook is called at each failpoint, with its name. Its error is the error of the thing that is done there. A nil Hook
// is never called.
type Hook func(name string) error

// At is the failpoint of that name.
func (h Hook) At(name string) error {
	if h == nil {
		return nil
	}
	return h(name)
}
