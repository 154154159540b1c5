// SPDX-License-Identifier: Apache-2.0

// Package failpoint lets a test act at each step of an operation: it kills the process there, makes the step fail,
// delays it, or counts it.
//
// A type whose operations must be undone or resumed after any failure has a Hook in its configuration, Failpoint, and calls
// it before or after each step:
//
//	if err := cfg.Failpoint.At("before save"); err != nil {
//		return err
//	}
//
// Outside tests the Hook is nil: a failpoint costs one comparison.
package failpoint

// Hook is called at each failpoint, with its name. The error that it returns is the error of that step. A nil Hook is
// never called.
type Hook func(name string) error

// At calls the Hook for the failpoint of that name.
func (h Hook) At(name string) error {
	if h == nil {
		return nil
	}
	return h(name)
}

// FileEnv is the environment variable with the path for FromFile.
const FileEnv = "WEFT_STEP_FILE"
