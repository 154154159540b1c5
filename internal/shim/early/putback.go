// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package early

import "syscall"

// putBack makes stdin hold again what was read of it (got) and what was not: the ordinary program then finds it untouched.
func putBack(got, spare []byte) bool {
	name := [1]byte{}
	fd, err := call(memfdCreate, at(name[:]), 0, 0, 0, 0)
	if err != 0 || !write(fd, got) {
		return false
	}
	for {
		n, err := read(0, spare)
		if err != 0 || n > len(spare) {
			return false
		}
		if n == 0 {
			break
		}
		if !write(fd, spare[:n]) {
			return false
		}
	}
	if _, err := call(syscall.SYS_LSEEK, fd, 0, 0, 0, 0); err != 0 {
		return false
	}
	if _, err := call(syscall.SYS_DUP3, fd, 0, 0, 0, 0); err != 0 {
		return false
	}
	shut(fd)
	return true
}
