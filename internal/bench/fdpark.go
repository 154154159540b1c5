// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// fdPark keeps file descriptions open outside the process's descriptor table: SCM_RIGHTS messages in flight on a socket
// pair. A process with a thousand descriptors forks and executes slower than one with a dozen, which would be
// attributed to the plugins. The kernel closes parked descriptions with the socket pair, also if the process is killed.
type fdPark struct{ in, out int }

// buffer fits about ten thousand descriptors in flight.
const buffer = 32 << 20

func newFDPark() (*fdPark, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("park descriptor: %w", err)
	}
	_ = unix.SetsockoptInt(ends[0], unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, buffer) // best effort: the default fits fewer
	return &fdPark{in: ends[0], out: ends[1]}, nil
}

// add parks the file description of fd; fd itself may be closed afterwards.
func (p *fdPark) add(fd int) error {
	if _, err := unix.SendmsgN(p.in, []byte{0}, unix.UnixRights(fd), nil, 0); err != nil {
		return fmt.Errorf("park descriptor: %w", err)
	}
	return nil
}

func (p *fdPark) close() {
	_ = unix.Close(p.in)
	_ = unix.Close(p.out)
}

// rights returns the descriptors received with a message.
func rights(oob []byte) []int {
	var all []int
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
			all = append(all, fds...)
		}
	}
	return all
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
