// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
)

// controlSocket is the socket for changes of a running VM, in its directory.
const controlSocket = "control.sock"

// maxRequest is the maximum size of a request, in bytes.
const maxRequest = 1 << 20

// serveChanges serves change requests until stop, which waits for a running one.
func (l *launch) serveChanges(ctx context.Context) (stop func(), err error) {
	dir, err := os.Open(l.Dir)
	if err != nil {
		return nil, fmt.Errorf("VM %s: %w", l.key, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a := adminapi.Routes{"POST /change": func(r *http.Request) (any, error) { return l.handleChange(ctx, r) }}
		if err := a.Serve(ctx, shortPath(dir), l.Log); err != nil {
			l.Log.Error("control socket of the VM failed; it cannot be changed", "vm", l.key, "err", err)
		}
	}()
	return func() {
		cancel()
		<-done
		l.changing.Lock()
		defer l.changing.Unlock()
		if !l.ended {
			_ = dir.Close()
		}
		l.ended = true
	}, nil
}

// shortPath returns a path of the socket through an open directory: a socket's path has at most 107 bytes.
func shortPath(dir *os.File) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), controlSocket)
}

func (l *launch) handleChange(ctx context.Context, r *http.Request) (any, error) {
	var c Change
	if err := json.NewDecoder(io.LimitReader(r.Body, maxRequest)).Decode(&c); err != nil {
		return nil, model.Errorf(model.CodeDecode, "", "change of VM %s: %w", l.key, err)
	}
	reqCtx, cancel := context.WithCancel(r.Context()) // ends with the request, and with the VM
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	if err := l.change(reqCtx, c); err != nil {
		return nil, err
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	return l.status, nil
}

// RequestChange sends a change to a running VM, and returns its new status.
func RequestChange(ctx context.Context, st Status, c Change, patience time.Duration) (out Status, err error) {
	dir, err := os.Open(st.Dir)
	if err != nil {
		return out, fmt.Errorf("VM %s: %w", st.Key(), err)
	}
	defer func() { _ = dir.Close() }()
	q := adminapi.Request{
		Socket: shortPath(dir), Method: http.MethodPost, Path: "/change", Body: c, Timeout: patience,
		Server: "control socket of VM " + st.Key(), Hint: "the VM must be running",
	}
	return out, q.Do(ctx, &out)
}
