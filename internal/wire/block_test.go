// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestBlockingReads lets many goroutines wait in Read while others work and the collector runs.
func TestBlockingReads(t *testing.T) {
	var wg sync.WaitGroup
	for range 50 {
		var fds [2]int
		if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			b := make([]byte, 3)
			for want := byte(0); ; want++ {
				n, err := Read(fds[0], b)
				if err != nil || n != 3 && n != 0 || n == 3 && b[0] != want {
					t.Errorf("read %d bytes %v, %v; want 3 of %d", n, b, err, want)
				}
				if n != 3 {
					break
				}
			}
			_ = syscall.Close(fds[0])
		})
		wg.Go(func() {
			for i := range byte(20) {
				if _, err := syscall.Write(fds[1], []byte{i, i, i}); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Millisecond)
				if i%10 == 0 {
					runtime.GC()
				}
			}
			_ = syscall.Close(fds[1])
		})
	}
	wg.Wait()
}

func TestBlockingErrors(t *testing.T) {
	if _, err := Read(-1, make([]byte, 1)); !errors.Is(err, syscall.EBADF) {
		t.Errorf("Read: %v", err)
	}
	if _, err := Accept(-1); !errors.Is(err, syscall.EBADF) {
		t.Errorf("Accept: %v", err)
	}
}
