// SPDX-License-Identifier: Apache-2.0

// Package handover passes guests' interfaces, configuration and open sockets, over a unix socket (SCM_RIGHTS) to the
// process that serves them. Each hand-over is one message with the length of the configuration and the sockets, followed
// by the configuration as JSON.
package handover

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/guest/serve"
	"github.com/weft-net/weft/internal/model"
)

const (
	// maxConfig bounds what Receive accepts; maxSockets is the limit of one message (SCM_MAX_FD).
	maxConfig  = 4 << 20
	maxSockets = 253
	version    = 1
)

// payload is sent along with the sockets. Each interface lists which of the sockets, in order, are its own.
type payload struct {
	Version    int         `json:"version"`
	Interfaces []ifPayload `json:"wires"`
}

type ifPayload struct {
	Guest model.GuestConfig `json:"guest"`
	DHCP4 bool              `json:"dhcp4,omitempty"`
	DHCP6 bool              `json:"dhcp6,omitempty"`
	RA    bool              `json:"ra,omitempty"`
}

// Send sends interfaces. The sockets stay open in this process, too.
func Send(c *net.UnixConn, interfaces []serve.Interface) error {
	w := payload{Version: version}
	var fds []int
	for _, from := range interfaces {
		s := from.Sockets
		w.Interfaces = append(w.Interfaces, ifPayload{
			Guest: from.Guest, DHCP4: s.DHCP4 != nil, DHCP6: s.DHCP6 != nil, RA: s.RA != nil,
		})
		for _, f := range []*os.File{s.DHCP4, s.DHCP6, s.RA} {
			if f != nil {
				fds = append(fds, int(f.Fd()))
			}
		}
	}
	if len(fds) > maxSockets {
		return fmt.Errorf("hand-over: %d sockets, at most %d fit", len(fds), maxSockets)
	}
	text, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("hand-over: %w", err)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := c.WriteMsgUnix(binary.BigEndian.AppendUint32(nil, uint32(len(text))), rights, nil); err != nil {
		return fmt.Errorf("hand-over: %w", err)
	}
	if _, err := c.Write(text); err != nil {
		return fmt.Errorf("hand-over: %w", err)
	}
	return nil
}

// Receive receives interfaces.
func Receive(c *net.UnixConn) ([]serve.Interface, error) {
	head, control := make([]byte, 4), make([]byte, unix.CmsgSpace(4*maxSockets))
	n, rest, _, _, err := c.ReadMsgUnix(head, control)
	if err != nil {
		return nil, fmt.Errorf("hand-over: %w", err)
	}
	files, err := receivedFiles(control[:rest])
	if err != nil {
		return nil, err
	}
	interfaces, err := read(c, head[:n], files)
	if err != nil {
		for _, f := range files {
			_ = f.Close()
		}
		return nil, fmt.Errorf("hand-over: %w", err)
	}
	return interfaces, nil
}

// receivedFiles returns the sockets in a control message.
func receivedFiles(control []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, fmt.Errorf("hand-over: %w", err)
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received socket"))
		}
	}
	return files, nil
}

// read reads the configuration and assigns the sockets to the interfaces.
func read(c io.Reader, head []byte, files []*os.File) ([]serve.Interface, error) {
	if len(head) != 4 {
		return nil, errors.New("the message is too short")
	}
	n := binary.BigEndian.Uint32(head)
	if n > maxConfig {
		return nil, fmt.Errorf("%d bytes of configuration, at most %d are accepted", n, maxConfig)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(c, text); err != nil {
		return nil, err
	}
	var w payload
	if err := json.Unmarshal(text, &w); err != nil {
		return nil, err
	}
	if w.Version != version {
		return nil, fmt.Errorf("version %d, want %d", w.Version, version)
	}
	next := 0
	out := make([]serve.Interface, len(w.Interfaces))
	for i, from := range w.Interfaces {
		out[i].Guest = from.Guest
		s := &out[i].Sockets
		for _, to := range []struct {
			has bool
			at  **os.File
		}{{from.DHCP4, &s.DHCP4}, {from.DHCP6, &s.DHCP6}, {from.RA, &s.RA}} {
			if !to.has {
				continue
			}
			if next == len(files) {
				return nil, fmt.Errorf("%d sockets, more were announced", len(files))
			}
			*to.at = files[next]
			next++
		}
	}
	if next != len(files) {
		return nil, fmt.Errorf("%d sockets, %d were announced", len(files), next)
	}
	return out, nil
}
