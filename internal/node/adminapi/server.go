// SPDX-License-Identifier: Apache-2.0

// Package adminapi is the agent's second socket, for root: HTTP with JSON over a unix socket beside the one for CNI
// calls, by which it is asked what it knows and told what it cannot see. What is refused arrives with its code and its
// hint. A network namespace may travel with a request, as a descriptor, since who asks may see other paths than who
// answers.
package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// Root alone asks, and asks little.
const (
	defaultTimeout = 10 * time.Second
	maxHeader      = 8 << 10 // bytes
)

// Path is the path of an agent's socket, beside its socket for CNI calls.
func Path(cniSocket string) string { return cniSocket + ".admin" }

// InStateDir is the path at which an agent's socket is found by its state directory: a symbolic link to it.
func InStateDir(stateDir string) string { return filepath.Join(stateDir, "admin.sock") }

// Link makes the link in a state directory that leads to a socket.
func Link(socket, stateDir string) error {
	link := InStateDir(stateDir)
	err := os.Remove(link)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		err = os.Symlink(socket, link)
	}
	if err != nil {
		return fmt.Errorf("admin socket by the state directory: %w", err)
	}
	return nil
}

// The routes that weft doctor asks.
const (
	// RouteCheck (POST) checks all attachments; the answer is a model.CheckReport.
	RouteCheck = "/attachments/check"
	// RouteCheckMachines (POST) compares all virtual machines with their pods; the answer is a model.MachineReport.
	RouteCheckMachines = "/machines/check"
	// RouteSettings (GET) is answered with the agent's configuration, flags included, without what is secret.
	RouteSettings = "/settings"
	// RouteMesh (GET) is answered with what is in force for the other nodes.
	RouteMesh = "/mesh"
)

// Routes are what there is an answer to, by method and path ("GET /policy/show").
type Routes map[string]func(*http.Request) (any, error)

// Under puts a prefix ("/policy") before the paths of routes.
func (r Routes) Under(prefix string) Routes {
	out := Routes{}
	for pattern, answer := range r {
		method, path, _ := strings.Cut(pattern, " ")
		out[method+" "+prefix+path] = answer
	}
	return out
}

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

// Serve answers on a socket until ctx ends.
func (r Routes) Serve(ctx context.Context, path string, log *slog.Logger) error {
	l, err := Listen(path, log)
	if err != nil {
		return err
	}
	return r.ServeOn(ctx, l, log)
}

// Listen takes the socket over: from then on who asks waits for ServeOn. A socket that cannot be is told to the log and
// is no error, and the listener is nil: its path may be too long, and the agent does its work without questions.
func Listen(path string, log *slog.Logger) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		log.Warn("nobody can ask here", "socket", path, "err", err)
		return nil, nil
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: %w", path, err), l.Close())
	}
	return l, nil
}

// ServeOn answers on a listener, which it closes, until ctx ends; on none it does nothing.
func (r Routes) ServeOn(ctx context.Context, l net.Listener, log *slog.Logger) error {
	if l == nil {
		return nil
	}
	web := &http.Server{
		Handler: r.handler(log), ReadTimeout: defaultTimeout, WriteTimeout: defaultTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	defer context.AfterFunc(ctx, func() { _ = web.Close() })()
	if err := web.Serve(listener{l}); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("socket %s: %w", l.Addr(), err)
	}
	return nil
}

func (r Routes) handler(log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	for pattern, answer := range r {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			extend(w, r)
			all, err := guarded(answer, r, pattern, log)
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

// guarded makes a panic of one answer that answer's error.
func guarded(
	answer func(*http.Request) (any, error), r *http.Request, pattern string, log *slog.Logger,
) (out any, err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("panic", "request", pattern, "value", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("%s: %w: %v", pattern, errPanic, p)
		}
	}()
	return answer(r)
}

var errPanic = errors.New("panic")

// timeoutHeader says that the client waits longer for the answer than usual.
const timeoutHeader = "Weft-Timeout"

// extend gives an answer the time that its client has for it: until that one hangs up.
func extend(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(timeoutHeader) == "" {
		return
	}
	c := http.NewResponseController(w)
	// a connection that has none is not one of Serve's
	_ = errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{}))
}
