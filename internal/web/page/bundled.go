// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"regexp"
)

// Package is a package of npm, of which the page has code.
type Package struct{ Name, Version, License string }

// Bundled returns the packages in a page, by its NOTICES.txt, or by a program that has that file; none if it has no page.
func Bundled(file []byte) []Package {
	begin := regexp.MustCompile(`weft's page has code of these packages\.\n\n== `)
	at := begin.FindIndex(file)
	if at == nil {
		return nil
	}
	notices, _, _ := bytes.Cut(file[at[0]:], []byte("\n== end\n"))
	var out []Package
	for _, m := range regexp.MustCompile(`(?m)^== (\S+) (\S+) \((.+)\)$`).FindAllSubmatch(notices, -1) {
		out = append(out, Package{string(m[1]), string(m[2]), string(m[3])})
	}
	return out
}
