// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// sendFrames sends frames as they are over a link.
func sendFrames(link string, frames []string) (err error) {
	ifc, err := net.InterfaceByName(link)
	if err != nil {
		return fmt.Errorf("link %s: %w", link, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	for i, text := range frames {
		frame, err := base64.StdEncoding.DecodeString(text)
		if err == nil {
			err = unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifc.Index})
		}
		if err != nil {
			return fmt.Errorf("frame %d: %w", i, err)
		}
	}
	return nil
}
