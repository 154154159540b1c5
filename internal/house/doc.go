// SPDX-License-Identifier: Apache-2.0

// Package house keeps the laws of the house. It has no code of its own: its tests read the source of all rooms and say
// which law is broken where, and why the law is there. They hold wherever the linter is not installed.
//
// Each law has a file of the same name in testdata, a small house that breaks it, so that a law which has stopped
// looking is found out. The drawing of who imports whom in ARCHITECTURE.md is compared with the imports; write it anew
// with
//
//	go test ./internal/house -run TestDrawing -update
package house
