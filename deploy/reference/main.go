// SPDX-License-Identifier: Apache-2.0

// Command reference writes docs/reference/kinds.md: every field of weft's kinds, from their definitions in deploy/crds.
//
//	go run ./deploy/reference
package main

import (
	"fmt"
	"os"
)

// page is the document, below the repository's root.
const page = "docs/reference/kinds.md"

func main() {
	b, err := kinds("deploy/crds")
	if err == nil {
		err = os.WriteFile(page, b, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}
