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
	// original is the ending of a foreign program that had to give way.
	original = ".weft-original"
)

// owner says whose a name in a plugin directory is.
type owner uint8

const (
	nobody owner = iota // there is no such file
	weft
	foreign
)

// whose looks at what a name is. A file that nobody may read is foreign.
func whose(path string) (owner, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nobody, nil
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
	if ours(path) {
		return weft, nil
	}
	return foreign, nil
}

// ours tells whether a program is one of weft's, of any version: the linker writes into each Go program what it was
// made of.
func ours(path string) bool {
	// Only files are opened: a pipe would wait for its other end.
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
