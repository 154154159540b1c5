// SPDX-License-Identifier: Apache-2.0

// Package handover gives guests' wires, words and open sockets, to the process that serves them, over a unix socket.
// One connection is one hand-over: the length of the words and the sockets in one message, then the words.
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
	// mostWords bounds what is taken in; mostSockets is what one message carries (SCM_MAX_FD).
	mostWords   = 4 << 20
	mostSockets = 253
	version     = 1
)

// words are what goes beside the sockets. Each wire says which of the sockets, in order, are its own.
type words struct {
	Version int    `json:"version"`
	Wires   []wire `json:"wires"`
}

type wire struct {
	Guest model.Guest `json:"guest"`
	DHCP4 bool        `json:"dhcp4,omitempty"`
	DHCP6 bool        `json:"dhcp6,omitempty"`
	RA    bool        `json:"ra,omitempty"`
}

// Give hands wires over. The sockets stay open here, too.
func Give(c *net.UnixConn, wires []serve.Wire) error {
	w := words{Version: version}
	var fds []int
	for _, from := range wires {
		s := from.Sockets
		w.Wires = append(w.Wires, wire{Guest: from.Guest, DHCP4: s.DHCP4 != nil, DHCP6: s.DHCP6 != nil, RA: s.RA != nil})
		for _, f := range []*os.File{s.DHCP4, s.DHCP6, s.RA} {
			if f != nil {
				fds = append(fds, int(f.Fd()))
			}
		}
	}
	if len(fds) > mostSockets {
		return fmt.Errorf("hand-over: %d sockets, at most %d fit", len(fds), mostSockets)
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

// Take takes wires.
func Take(c *net.UnixConn) ([]serve.Wire, error) {
	head, control := make([]byte, 4), make([]byte, unix.CmsgSpace(4*mostSockets))
	n, rest, _, _, err := c.ReadMsgUnix(head, control)
	if err != nil {
		return nil, fmt.Errorf("hand-over: %w", err)
	}
	files, err := take(control[:rest])
	if err != nil {
		return nil, err
	}
	wires, err := read(c, head[:n], files)
	if err != nil {
		for _, f := range files {
			_ = f.Close()
		}
		return nil, fmt.Errorf("hand-over: %w", err)
	}
	return wires, nil
}

// take takes the sockets out of a message.
func take(control []byte) (files []*os.File, err error) {
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
			files = append(files, os.NewFile(uintptr(fd), "handed over"))
		}
	}
	return files, nil
}

// read reads the words and gives each wire its sockets.
func read(c io.Reader, head []byte, files []*os.File) ([]serve.Wire, error) {
	if len(head) != 4 {
		return nil, errors.New("it ended early")
	}
	n := binary.BigEndian.Uint32(head)
	if n > mostWords {
		return nil, fmt.Errorf("%d bytes of words, at most %d are taken", n, mostWords)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(c, text); err != nil {
		return nil, err
	}
	var w words
	if err := json.Unmarshal(text, &w); err != nil {
		return nil, err
	}
	if w.Version != version {
		return nil, fmt.Errorf("version %d, %d is known", w.Version, version)
	}
	next := 0
	out := make([]serve.Wire, len(w.Wires))
	for i, from := range w.Wires {
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
