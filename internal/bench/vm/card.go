// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/bench/rounds"
)

// order is what a card is told, a line of JSON.
type order struct {
	// From is the file that frames are written to: fdTap, or one whose frames the card takes in again.
	From int
	// Frame is written as it is, again and again.
	Frame  []byte
	Millis int
}

// outcome is what a card says, a line of JSON. It first says that it is ready.
type outcome struct {
	Ready bool `json:",omitempty"`
	// Frames were sent, of those Taken were taken in, in so many seconds; Each is the microseconds of one: of many short
	// stretches the median, so that one in which the processor did something else does not count.
	Frames  int     `json:",omitempty"`
	Taken   int     `json:",omitempty"`
	Seconds float64 `json:",omitempty"`
	Each    float64 `json:",omitempty"`
	Error   string  `json:",omitempty"`
}

// The files of a card, by their descriptors.
const (
	fdTap   = 3 // the machine's
	fdNode  = 4 // a packet socket on the node's end of the machine's wire
	fdPeer  = 5 // one on the peer's link
	fdGuest = 6 // the guest's own, where there is a guest
)

const (
	burst   = 64 // frames that a card's queue holds at any rate
	largest = 1<<16 + 64
	// patience is how many milliseconds the last frames have to arrive.
	patience = 50
)

// Card is the life of a card: it carries frames between the machine's tap and the guest's until in ends, and sends and
// takes frames itself when in says so. The files are those that it was started with.
func Card(in *os.File, out io.Writer, guest bool) error {
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	fds := []unix.PollFd{{Fd: int32(in.Fd()), Events: unix.POLLIN}}
	files := []int{fdTap, fdNode, fdPeer}
	if guest {
		files = append(files, fdGuest)
		fds = append(fds, unix.PollFd{Fd: fdTap, Events: unix.POLLIN}, unix.PollFd{Fd: fdGuest, Events: unix.POLLIN})
	}
	for _, fd := range files {
		if err := unix.SetNonblock(fd, true); err != nil {
			return err
		}
	}
	say, lines := json.NewEncoder(out), bufio.NewScanner(in)
	if err := say.Encode(outcome{Ready: true}); err != nil {
		return err
	}
	buffer := make([]byte, largest)
	for {
		if err := poll(fds); err != nil {
			return err
		}
		if fds[0].Revents != 0 {
			if !lines.Scan() {
				return lines.Err()
			}
			if err := say.Encode(obey(lines.Bytes(), buffer)); err != nil {
				return err
			}
		}
		if guest && fds[1].Revents != 0 {
			carry(fdTap, fdGuest, buffer)
		}
		if guest && fds[2].Revents != 0 {
			carry(fdGuest, fdTap, buffer)
		}
	}
}

// carry takes what there is from one tap to the other, but not for ever. A link that is down takes none.
func carry(from, to int, buffer []byte) {
	for range burst {
		n, err := read(from, buffer)
		if err != nil {
			return
		}
		_, _ = write(to, buffer[:n])
	}
}

func obey(line, buffer []byte) outcome {
	var o order
	err := json.Unmarshal(line, &o)
	var result outcome
	if err == nil {
		result, err = frames(o, buffer)
	}
	if err != nil {
		return outcome{Error: err.Error()}
	}
	return result
}

// frames sends, and takes in what was sent to it, for a while.
func frames(o order, buffer []byte) (outcome, error) {
	drain(buffer)
	var result outcome
	var each []float64
	begin, span := time.Now(), time.Duration(o.Millis)*time.Millisecond
	for last := begin; last.Sub(begin) < span; {
		if err := send(o); err != nil {
			return outcome{}, err
		}
		if o.From != fdTap {
			result.Taken += drain(buffer)
		}
		result.Frames += burst
		now := time.Now()
		each = append(each, float64(now.Sub(last))/float64(time.Microsecond)/burst)
		last = now
	}
	result.Seconds = time.Since(begin).Seconds()
	for range patience { // the kernel may have put some off
		if o.From == fdTap || result.Taken >= result.Frames {
			break
		}
		time.Sleep(time.Millisecond)
		result.Taken += drain(buffer)
	}
	result.Each, _, _ = rounds.Spread(each)
	return result, nil
}

func send(o order) error {
	for range burst {
		if _, err := write(o.From, o.Frame); err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("send: %w", err)
		}
	}
	return nil
}

// drain takes in all that there is.
func drain(buffer []byte) (n int) {
	for {
		if _, err := read(fdTap, buffer); err != nil {
			return n
		}
		n++
	}
}
