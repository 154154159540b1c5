// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// lean unmaps the pages of the program's own file that its start has touched. weft is one program for many things, and
// the kernel maps sixteen pages for each that is needed, so that an agent that has just started has two thirds of all that
// resident. What it works with comes back from the page cache as it is touched. A favour: whatever goes wrong is no
// matter.
func lean() {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	for line := range bytes.Lines(maps) {
		fields := bytes.Fields(line) // address, permissions, offset, device, inode, path
		if len(fields) < 6 || fields[1][1] == 'w' || string(fields[5]) != self {
			continue
		}
		from, to, _ := bytes.Cut(fields[0], []byte("-"))
		lo, badLo := strconv.ParseUint(string(from), 16, 64)
		hi, badHi := strconv.ParseUint(string(to), 16, 64)
		if badLo == nil && badHi == nil && lo < hi {
			_, _, _ = unix.RawSyscall(unix.SYS_MADVISE, uintptr(lo), uintptr(hi-lo), unix.MADV_DONTNEED)
		}
	}
}
