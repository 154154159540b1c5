// SPDX-License-Identifier: Apache-2.0

package flock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const holder = "FLOCK_HOLDER"

func TestMain(m *testing.M) {
	if path := os.Getenv(holder); path != "" {
		f, err := TryOpen(path, Exclusive, 0o600)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("held")
		_, _ = io.Copy(io.Discard, os.Stdin) // until the kill, or the end of the test
		_ = f.Close()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// hold makes another process hold the lock until kill.
func hold(t *testing.T, path string) (kill func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), holder+"="+path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the holder said %q: %v", line, err)
	}
	var once sync.Once
	kill = func() { once.Do(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = in.Close() }) }
	t.Cleanup(kill)
	return kill
}

// Open waits for a lock of another process until the context ends, and takes it when that process is killed.
func TestOtherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if Held(path) {
		t.Error("held before there is a file")
	}
	kill := hold(t, path)
	if !Held(path) {
		t.Error("not held")
	}
	for _, how := range []Mode{Exclusive, Shared} {
		if f, err := TryOpen(path, how, 0o600); !errors.Is(err, ErrHeld) {
			t.Errorf("TryOpen: %v, %v", f, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var at *fs.PathError
	if f, err := Open(ctx, path, Exclusive, 0o600); !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &at) ||
		at.Path != path {
		t.Errorf("Open: %v, %v", f, err)
	}
	got := make(chan error, 1)
	go func() {
		f, err := Open(t.Context(), path, Exclusive, 0o600)
		if err == nil {
			err = f.Close()
		}
		got <- err
	}()
	kill()
	if err := <-got; err != nil {
		t.Errorf("after the kill: %v", err)
	}
	// A free lock is taken although the context has ended.
	f, err := Open(ctx, path, Exclusive, 0o600)
	if err != nil {
		t.Fatalf("free: %v", err)
	}
	if err := f.Close(); err != nil || Held(path) {
		t.Errorf("closed: %v, held %v", err, Held(path))
	}
}

func TestShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	a, err := TryOpen(path, Shared, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	b, err := TryOpen(path, Shared, 0o600)
	if err != nil {
		t.Fatalf("a second shared lock: %v", err)
	}
	if Held(path) {
		t.Error("shared locks count as an exclusive one")
	}
	if _, err := TryOpen(path, Exclusive, 0o600); !errors.Is(err, ErrHeld) {
		t.Errorf("exclusive beside shared: %v", err)
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	if err := Try(^uintptr(0)>>33, Exclusive); err == nil || errors.Is(err, ErrHeld) {
		t.Errorf("no descriptor: %v", err)
	}
}

// Many take a lock whose file each removes before releasing it: there are never two holders.
func TestRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var wg sync.WaitGroup
	exclusive := make(chan struct{}, 1)
	for range 8 {
		wg.Go(func() {
			for range 50 {
				f, err := Open(t.Context(), path, Exclusive, 0o600)
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case exclusive <- struct{}{}:
				default:
					t.Error("two hold the lock")
					_ = f.Close()
					return
				}
				if there, err := os.Stat(path); err != nil {
					t.Errorf("the lock's file: %v, %v", there, err)
				}
				<-exclusive
				if err := errors.Join(os.Remove(path), f.Close()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
