// SPDX-License-Identifier: Apache-2.0

package install

import (
	"debug/buildinfo"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// The programs that are installed.
const (
	shimName   = "weft-cni"
	pluginName = "weft-plugin"
	loopback   = "loopback"
	// original is the suffix of a foreign program that was replaced.
	original = ".weft-original"
)

// owner is the vendor of a program in a plugin directory.
type owner uint8

const (
	missing owner = iota // there is no such file
	weft
	foreign
)

// ownerOf returns the owner of a name. An unreadable file is foreign.
func ownerOf(path string) (owner, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return missing, nil
	}
	if err != nil {
		return foreign, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err := os.Readlink(path); err == nil &&
			(filepath.Base(target) == pluginName || filepath.Base(target) == shimName) {
			return weft, nil
		}
	}
	if isWeft(path) {
		return weft, nil
	}
	return foreign, nil
}

// isWeft reports whether a program is one of weft's, of any version, by the build information in each Go program.
func isWeft(path string) bool {
	// Only regular files are opened: opening a pipe would block.
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return false
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return false
	}
	const programs = "github.com/weft-net/weft/cmd/"
	return info.Path == programs+shimName || info.Path == programs+pluginName
}
