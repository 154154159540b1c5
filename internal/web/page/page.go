// SPDX-License-Identifier: Apache-2.0

// Package page has the files of weft's page. src is their source, from which make web builds files/.
package page

import (
	"embed"
	"io/fs"
)

//go:embed files
var files embed.FS

// Files returns index.html and what it loads.
func Files() fs.FS {
	sub, err := fs.Sub(files, "files")
	if err != nil {
		panic(err) // the directory is embedded
	}
	return sub
}
