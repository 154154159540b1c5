// SPDX-License-Identifier: Apache-2.0

// Package adminapi is the agent's admin socket, for root: HTTP with JSON on a unix socket next to the CNI socket. It
// serves the agent's state and accepts commands. An error response has the error's code and hint. A request may carry
// a network namespace as a file descriptor, because the client may have another mount namespace than the server.
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

// Only root connects, and requests are small.
const (
	defaultTimeout = 10 * time.Second
	maxHeader      = 8 << 10 // bytes
)

// Path returns the path of an agent's admin socket, next to its CNI socket.
func Path(cniSocket string) string { return cniSocket + ".admin" }

// InStateDir returns the path of the symbolic link to the agent's admin socket in its state directory.
func InStateDir(stateDir string) string { return filepath.Join(stateDir, "admin.sock") }

// Link creates the link to the socket in a state directory.
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
		return fmt.Errorf("link to the admin socket: %w", err)
	}
	return nil
}

// The routes that weft doctor uses.
const (
	// RouteCheck (POST) checks all attachments; the response is a model.CheckReport.
	RouteCheck = "/attachments/check"
	// RouteCheckVMs (POST) compares all VMs with their pods; the response is a model.VMReport.
	RouteCheckVMs = "/machines/check"
	// RouteSettings (GET) returns the agent's configuration, including flags and without secrets.
	RouteSettings = "/settings"
	// RouteStatus (GET) returns the agent's nodestatus.Status.
	RouteStatus = "/status"
	// RouteVersion (GET) returns the agent's Version.
	RouteVersion = "/version"
	// RouteMesh (GET) returns the state of the mesh on this node.
	RouteMesh = "/mesh"
	// RouteBGP (GET) returns the state of BGP on this node, a nodebgp.Status.
	RouteBGP = "/bgp"
)

// Version is the version of an agent.
type Version struct {
	Node    string `json:"node"`
	Version string `json:"version"`
}

// Routes are handlers by method and path ("GET /policy/show").
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

// Refusal is an error response.
type Refusal struct {
	Code    model.Code `json:"code"`
	Message string     `json:"message"`
	Hint    string     `json:"hint,omitempty"`
}

// error returns the error as the server had it.
func (r Refusal) error() error { return model.Errorf(r.Code, r.Hint, "%s", r.Message) }

// Refuse answers a request with an error.
func Refuse(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(refusal(err))
}

func refusal(err error) Refusal {
	r := Refusal{Code: model.CodeInternal, Message: err.Error()}
	var f *model.Error
	if errors.As(err, &f) {
		r.Code, r.Hint = f.Code, f.Hint
		r.Message = strings.TrimSuffix(r.Message, " ("+f.Hint+")")
	}
	return r
}

// Serve serves requests on a socket until ctx ends.
func (r Routes) Serve(ctx context.Context, path string, log *slog.Logger) error {
	l, err := Listen(path, log)
	if err != nil {
		return err
	}
	return r.ServeOn(ctx, l, log)
}

// Listen replaces the socket; clients that connect wait for ServeOn. A socket that cannot be created is logged and is
// no error, and the listener is nil: its path may be too long, and the agent works without it.
func Listen(path string, log *slog.Logger) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		log.Warn("admin socket is not available", "socket", path, "err", err)
		return nil, nil
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: %w", path, err), l.Close())
	}
	return l, nil
}

// ServeOn serves requests on a listener, which it closes, until ctx ends. It does nothing on a nil listener.
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
			if stream, ok := all.(Stream); ok && err == nil {
				stream.Serve(w, r, log)
				return
			}
			if err != nil {
				Refuse(w, http.StatusBadRequest, err)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(all)
		})
	}
	return mux
}

// guarded turns a panic of a handler into an error.
func guarded(
	answer func(*http.Request) (any, error), r *http.Request, pattern string, log *slog.Logger,
) (out any, err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("handler of an admin request panicked", "request", pattern, "panic", fmt.Sprint(p),
				"stack", string(debug.Stack()))
			err = fmt.Errorf("%s: %w: %v", pattern, errPanic, p)
		}
	}()
	return answer(r)
}

var errPanic = errors.New("panic")

// timeoutHeader is set by a client that waits longer than the default.
const timeoutHeader = "Weft-Timeout"

// extend removes the deadlines of a response whose client waits longer: it ends when the client disconnects.
func extend(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(timeoutHeader) == "" {
		return
	}
	c := http.NewResponseController(w)
	// errors: the connection does not support deadlines
	_ = errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{}))
}
