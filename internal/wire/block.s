// SPDX-License-Identifier: Apache-2.0

// Empty: a package with functions whose bodies are elsewhere (block.go) needs a file of assembly.
