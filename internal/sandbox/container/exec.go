// SPDX-License-Identifier: Apache-2.0

package container

import (
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// Exec runs a command in all namespaces of a container's process, and waits for it.
func Exec(id process.ID, cmd *exec.Cmd) error {
	fd, err := id.Open()
	if err != nil {
		return fmt.Errorf("process of the container: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	kinds := unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWPID
	return netns.Join(fd, kinds, func() error {
		if err := cmd.Start(); err != nil {
			return err
		}
		return cmd.Wait()
	})
}

// ExitCode returns a process's exit code as a shell reports it: 128 + N after signal N.
func ExitCode(ps *os.ProcessState) int { return exitOf(ps).Code }
