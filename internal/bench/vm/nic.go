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

// order is a request to the NIC process, a line of JSON.
type order struct {
	// From is the file to which frames are written: fdTap, or a packet socket whose frames arrive at the tap.
	From int
	// Frame is written repeatedly as it is.
	Frame  []byte
	Millis int
}

// outcome is the response to an order, a line of JSON. The process first reports that it is ready.
type outcome struct {
	Ready bool `json:",omitempty"`
	// Frames is the number of frames sent, Received the number of those received, Seconds the duration. Each is the time
	// of one frame in microseconds: the median of many short intervals, so that an interval in which the CPU was
	// interrupted does not count.
	Frames   int     `json:",omitempty"`
	Received int     `json:",omitempty"`
	Seconds  float64 `json:",omitempty"`
	Each     float64 `json:",omitempty"`
	Error    string  `json:",omitempty"`
}

// The descriptors of the NIC process.
const (
	fdTap   = 3 // the VM's tap
	fdNode  = 4 // a packet socket on the VM's host interface
	fdPeer  = 5 // a packet socket on the peer's interface
	fdGuest = 6 // the guest's tap, if there is a guest
)

const (
	burst    = 64 // frames that always fit into a tap's queue
	maxFrame = 1<<16 + 64
	// drainTime is how many milliseconds the last frames have to arrive.
	drainTime = 50
)

// RunNIC runs the NIC process until EOF on in: it forwards frames between the VM's tap and the guest's, and on orders
// from in sends and receives frames itself. The descriptors are inherited.
func RunNIC(in *os.File, out io.Writer, guest bool) error {
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
	enc, lines := json.NewEncoder(out), bufio.NewScanner(in)
	if err := enc.Encode(outcome{Ready: true}); err != nil {
		return err
	}
	buffer := make([]byte, maxFrame)
	for {
		if err := poll(fds); err != nil {
			return err
		}
		if fds[0].Revents != 0 {
			if !lines.Scan() {
				return lines.Err()
			}
			if err := enc.Encode(execute(lines.Bytes(), buffer)); err != nil {
				return err
			}
		}
		if guest && fds[1].Revents != 0 {
			forward(fdTap, fdGuest, buffer)
		}
		if guest && fds[2].Revents != 0 {
			forward(fdGuest, fdTap, buffer)
		}
	}
}

// forward copies pending frames from one tap to the other, at most a burst. Writes to a link that is down are dropped.
func forward(from, to int, buffer []byte) {
	for range burst {
		n, err := read(from, buffer)
		if err != nil {
			return
		}
		_, _ = write(to, buffer[:n])
	}
}

func execute(line, buffer []byte) outcome {
	var o order
	err := json.Unmarshal(line, &o)
	var result outcome
	if err == nil {
		result, err = sendFrames(o, buffer)
	}
	if err != nil {
		return outcome{Error: err.Error()}
	}
	return result
}

// sendFrames sends frames for a while, and counts those that arrive at the tap.
func sendFrames(o order, buffer []byte) (outcome, error) {
	drain(buffer)
	var result outcome
	var each []float64
	begin, span := time.Now(), time.Duration(o.Millis)*time.Millisecond
	for last := begin; last.Sub(begin) < span; {
		if err := sendBurst(o); err != nil {
			return outcome{}, err
		}
		if o.From != fdTap {
			result.Received += drain(buffer)
		}
		result.Frames += burst
		now := time.Now()
		each = append(each, float64(now.Sub(last))/float64(time.Microsecond)/burst)
		last = now
	}
	result.Seconds = time.Since(begin).Seconds()
	for range drainTime { // the kernel may defer some
		if o.From == fdTap || result.Received >= result.Frames {
			break
		}
		time.Sleep(time.Millisecond)
		result.Received += drain(buffer)
	}
	result.Each, _, _ = rounds.Spread(each)
	return result, nil
}

func sendBurst(o order) error {
	for range burst {
		if _, err := write(o.From, o.Frame); err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("send: %w", err)
		}
	}
	return nil
}

// drain receives all pending frames and returns their number.
func drain(buffer []byte) (n int) {
	for {
		if _, err := read(fdTap, buffer); err != nil {
			return n
		}
		n++
	}
}
