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

// socketName is where a machine that runs is asked to change, in its directory.
const socketName = "control.sock"

// mostAsked bounds a question.
const mostAsked = 1 << 20

// answer takes changes of the machine until stop, which waits for one that is under way.
func (l *launch) answer(ctx context.Context) (stop func(), err error) {
	dir, err := os.Open(l.Dir)
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", l.key, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a := adminapi.Routes{"POST /change": func(r *http.Request) (any, error) { return l.change(ctx, r) }}
		if err := a.Serve(ctx, short(dir), l.Log); err != nil {
			l.Log.Error("nobody can change the machine", "err", err)
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

// short is a path of the socket by a directory that is open: that of a socket has at most 107 bytes.
func short(dir *os.File) string { return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketName) }

func (l *launch) change(ctx context.Context, r *http.Request) (any, error) {
	var c Change
	if err := json.NewDecoder(io.LimitReader(r.Body, mostAsked)).Decode(&c); err != nil {
		return nil, model.Faultf(model.CodeDecode, "", "change of machine %s: %w", l.key, err)
	}
	asked, cancel := context.WithCancel(r.Context()) // ends with who asked, and with the machine
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	if err := l.become(asked, c); err != nil {
		return nil, err
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	return l.status, nil
}

// Ask has a machine that runs change, and tells what is known of it then.
func Ask(ctx context.Context, st Status, c Change, patience time.Duration) (out Status, err error) {
	dir, err := os.Open(st.Dir)
	if err != nil {
		return out, fmt.Errorf("machine %s: %w", st.Key(), err)
	}
	defer func() { _ = dir.Close() }()
	q := adminapi.Request{
		Socket: short(dir), Method: http.MethodPost, Path: "/change", Body: c, Timeout: patience,
		Server: "machine " + st.Key() + " that can change", Hint: "it must run",
	}
	return out, q.Do(ctx, &out)
}
