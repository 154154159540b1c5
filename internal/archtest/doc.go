// SPDX-License-Identifier: Apache-2.0

// Package archtest tests the laws of the source tree: which packages may import which, what code must not do, the words of
// docs/glossary.md, and tables in documents that must match the code. It has no code but package glossary. A failure names
// the place and the reason for the law. The laws do not need the linter.
//
// Each law of laws_test.go has a fixture in testdata that violates it, so that a law that stops finding violations is
// noticed. The import graph in ARCHITECTURE.md is compared with the imports; update it with
//
//	go test ./internal/archtest -run TestImportGraph -update
package archtest
