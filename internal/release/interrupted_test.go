// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/release"
)

// childEnv is the kubeconfig of the process that a test interrupts.
const childEnv = "WEFT_TEST_INSTALL"

// TestInterruptedChild is that process.
func TestInterruptedChild(t *testing.T) {
	path := os.Getenv(childEnv)
	if path == "" {
		return // it is run by TestInterrupted
	}
	ctx, cancel := signal.NotifyContext(t.Context(), os.Interrupt)
	defer cancel()
	c, err := release.Open(release.Target{Kubeconfig: path, Version: "v1.2.3", Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		_, err = c.Apply(ctx, release.Options{Install: true})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestInterrupted: an installation that is interrupted by Ctrl-C, or killed, when one of its objects exists is completed
// by the same command, and has no part twice. What is there before that can be removed.
func TestInterrupted(t *testing.T) {
	nettest.EndToEnd(t)
	for _, c := range []struct {
		name, until string
		signal      os.Signal
	}{
		{"Ctrl-C at the first kind", kinds, os.Interrupt},
		{"Ctrl-C at the ConfigMap", configMap, os.Interrupt},
		{"killed at the ConfigMap", configMap, os.Kill},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			child := exec.Command(os.Args[0], "-test.run=^TestInterruptedChild$", "-test.v")
			child.Env = append(os.Environ(), childEnv+"="+w.target.Kubeconfig)
			child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			var out bytes.Buffer
			child.Stdout, child.Stderr = &out, &out
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- child.Wait() }()
			w.exists(c.until, ended)
			if err := child.Process.Signal(c.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
			// On a host so busy that it had ended before there is nothing to complete, and the same command says so.
			err := <-ended
			complete := err == nil
			var exit *exec.ExitError
			if killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled(); !complete && !killed &&
				!strings.Contains(out.String(), "context canceled") {
				t.Fatalf("%v: %s", err, out.String())
			}
			t.Logf("it was complete: %v", complete)
			cluster := w.open()
			r, err := w.apply(cluster)
			switch {
			case complete && !has(err, "weft is installed already"):
				t.Fatalf("again: %+v, %v", r, err)
			case !complete && err != nil:
				t.Fatalf("again: %v", err)
			}
			s, err := cluster.Status(t.Context())
			if err != nil || s.State != "deployed" {
				t.Errorf("status: %+v, %v", s, err)
			}
			if got := w.names(kinds); len(got) != ownKinds {
				t.Errorf("%d kinds: %q", len(got), got)
			}
			var d agentSet
			w.get(daemonSet, &d)
			if len(d.Spec.Template.Spec.Containers) == 0 {
				t.Error("no agent")
			}
		})
	}
}

// apply installs, and waits for the lock of a process that was killed: half a minute.
func (w *world) apply(c *release.Cluster) (r release.Result, err error) {
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		if r, err = c.Apply(w.t.Context(), release.Options{Install: true}); !has(err, "process ") {
			return r, err
		}
	}
	return r, err
}

// exists waits until a list has a name of weft's, or an object is there, or the process has ended.
func (w *world) exists(path string, ended chan error) {
	w.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		select {
		case err := <-ended:
			ended <- err
			return
		default:
		}
		if path == kinds && len(w.names(path)) > 0 {
			return
		}
		if path != kinds {
			dir, name := path[:strings.LastIndex(path, "/")], path[strings.LastIndex(path, "/")+1:]
			if strings.Contains(string(w.Do(http.MethodGet, dir, nil)), `"name":"`+name+`"`) {
				return
			}
		}
		if time.Now().After(end) {
			w.t.Fatalf("%s does not appear", path)
		}
	}
}
