// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// parking holds open descriptors that nobody has in his table: they are in flight between two ends of a socket. A
// process with a thousand descriptors forks and executes slower than one with a dozen, and that would be taken for the
// plugins' time. What is parked is closed with the parking, also when the process is killed.
type parking struct{ in, out int }

// buffer has room for some ten thousand descriptors in flight.
const buffer = 32 << 20

func newParking() (*parking, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("parking: %w", err)
	}
	_ = unix.SetsockoptInt(ends[0], unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, buffer) // without it there is room for fewer
	return &parking{in: ends[0], out: ends[1]}, nil
}

// take keeps what fd stands for; fd itself may be closed.
func (p *parking) take(fd int) error {
	if _, err := unix.SendmsgN(p.in, []byte{0}, unix.UnixRights(fd), nil, 0); err != nil {
		return fmt.Errorf("parking: %w", err)
	}
	return nil
}

func (p *parking) close() {
	_ = unix.Close(p.in)
	_ = unix.Close(p.out)
}

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
