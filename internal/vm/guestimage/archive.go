// SPDX-License-Identifier: Apache-2.0

package guestimage

import (
	"fmt"
	"io"
	"slices"
)

// archive is an initramfs: a cpio archive in the "newc" format.
type archive []entry

type entry struct {
	name         string
	mode         uint32
	data         []byte
	major, minor uint32
}

const (
	modeDir, modeFile, modeDevice = 0o040000, 0o100000, 0o020000
	// trailer is the name of the last entry.
	trailer = "TRAILER!!!"
)

func dir(name string) entry { return entry{name: name, mode: modeDir | 0o755} }
func program(name string, data []byte) entry {
	return entry{name: name, mode: modeFile | 0o755, data: data}
}

func device(name string, a, b uint32) entry {
	return entry{name: name, mode: modeDevice | 0o600, major: a, minor: b}
}
func pad(n int) []byte { return make([]byte, (4-n%4)%4) }

// write writes the archive. It is reproducible: it has no times and no owners.
func (a archive) write(w io.Writer) error {
	for i, e := range append(slices.Clip(a), entry{name: trailer}) {
		links := 1
		if e.mode&modeDir != 0 && e.mode&modeFile == 0 {
			links = 2
		}
		head := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
			i+1, e.mode, 0, 0, links, 0, len(e.data), 0, 0, e.major, e.minor, len(e.name)+1, 0, e.name)
		for _, part := range [][]byte{[]byte(head), pad(len(head)), e.data, pad(len(e.data))} {
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
	}
	return nil
}
