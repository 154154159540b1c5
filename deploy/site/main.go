// SPDX-License-Identifier: Apache-2.0

// Command site renders docs/ to static HTML with navigation and search. The pages are Markdown that also reads well in a
// repository browser; docs/README.md is the index: its headings and lists are the navigation.
//
//	go run ./deploy/site -o bin/site
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	root := flag.String("root", ".", "directory of the repository")
	out := flag.String("o", "bin/site", "directory to write")
	flag.Parse()
	s, err := load(*root)
	if err == nil {
		err = s.write(*out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Printf("site: %d pages in %s\n", len(s.pages), *out)
}
