// SPDX-License-Identifier: Apache-2.0

// Package inquiry is how root asks an agent what it knows, and tells it what it cannot see: HTTP with JSON over a unix socket in
// the agent's state directory, which nobody else may open. What is refused arrives with its code and its hint.
package inquiry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
)

// Root alone asks, and asks little; mostAnswer bounds what is read of an answer.
const (
	askTime    = 10 * time.Second
	askHead    = 8 << 10
	mostAnswer = 64 << 20
)

// Answers are what there is an answer to, by method and path ("GET /show").
type Answers map[string]func(*http.Request) (any, error)

// Refusal is an answer that says no.
type Refusal struct {
	Code    model.Code `json:"code"`
	Message string     `json:"message"`
	Hint    string     `json:"hint,omitempty"`
}

func refusal(err error) Refusal {
	r := Refusal{Code: model.CodeInternal, Message: err.Error()}
	var f *model.Fault
	if errors.As(err, &f) {
		r.Code, r.Hint = f.Code, f.Hint
		r.Message = strings.TrimSuffix(r.Message, " ("+f.Hint+")")
	}
	return r
}

// Serve answers on a socket until ctx ends. A socket that cannot be is told to the log and is no error: its path may be too long,
// and the agent does its work without questions.
func (a Answers) Serve(ctx context.Context, path string, log *slog.Logger) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		log.Warn("nobody can ask here", "socket", path, "err", err)
		return nil
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(fmt.Errorf("socket %s: %w", path, err), l.Close())
	}
	web := &http.Server{
		Handler: a.handler(), ReadTimeout: askTime, WriteTimeout: askTime, MaxHeaderBytes: askHead,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	defer context.AfterFunc(ctx, func() { _ = web.Close() })()
	if err := web.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	return nil
}

func (a Answers) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, tell := range a {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			wait(w, r)
			all, err := tell(r)
			w.Header().Set("Content-Type", "application/json")
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
				all = refusal(err)
			}
			_ = json.NewEncoder(w).Encode(all)
		})
	}
	return mux
}

// patienceHeader says that who asks waits longer for the answer.
const patienceHeader = "Patience"

// wait gives an answer the time that who asks has for it: until that one hangs up.
func wait(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(patienceHeader) == "" {
		return
	}
	c := http.NewResponseController(w)
	_ = errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{})) // a connection that has none is not one of Serve's
}

// Question is asked of who answers on a socket.
type Question struct {
	Socket string
	// Method and What are the pattern, Query what is asked for.
	Method string
	What   string
	Query  url.Values
	// Body, unless it is nil, is sent as JSON. Patience is how long the answer may take; 0 is 10 s.
	Body     any
	Patience time.Duration
	// Who says whom there should be ("agent that obeys network policies"), Hint what to do when there is none.
	Who  string
	Hint string
}

// Ask asks; what is answered goes into a value.
func (q Question) Ask(ctx context.Context, into any) error {
	patience := cmp.Or(q.Patience, askTime)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", q.Socket)
		},
	}}
	var body io.Reader
	if q.Body != nil {
		b, err := json.Marshal(q.Body)
		if err != nil {
			return fmt.Errorf("question: %w", err)
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, q.Method, "http://agent/"+q.What+"?"+q.Query.Encode(), body)
	if err != nil {
		return err
	}
	if q.Patience > 0 {
		r.Header.Set(patienceHeader, patience.String())
	}
	answer, err := client.Do(r)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return model.Faultf(model.CodeIO, q.Hint, "%w", nobodyError{q.Who, q.Socket})
	case err != nil:
		return fmt.Errorf("%s: %w", q.Socket, err)
	}
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(answer.Body, mostAnswer))
	if err == nil && answer.StatusCode != http.StatusOK {
		var no Refusal
		if json.Unmarshal(b, &no) != nil || no.Message == "" {
			return fmt.Errorf("%s: %s", q.Socket, answer.Status)
		}
		return model.Faultf(no.Code, no.Hint, "%s", no.Message)
	}
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", q.Socket, err)
	}
	return nil
}

// ErrNobody is what an error is when nobody listens at the socket.
var ErrNobody = errors.New("nobody answers")

// nobodyError says who does not listen, and where.
type nobodyError struct{ who, socket string }

func (e nobodyError) Error() string { return fmt.Sprintf("no %s answers at %s", e.who, e.socket) }

func (e nobodyError) Is(target error) bool { return target == ErrNobody }
