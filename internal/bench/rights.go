// SPDX-License-Identifier: Apache-2.0

package bench

import "golang.org/x/sys/unix"

// closeRights closes the descriptors that came with a message.
func closeRights(oob []byte) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
}
