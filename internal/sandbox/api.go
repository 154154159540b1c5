// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/weft-net/weft/internal/cni/confdir"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox/engine"
	"github.com/weft-net/weft/internal/sandbox/pod"
)

// listen opens the API socket. The lock on the state directory excludes other servers, so an existing socket is stale.
func listen(stateDir string) (net.Listener, error) {
	path, done, err := socketPath(stateDir)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := os.Remove(Socket(stateDir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l, os.Chmod(Socket(stateDir), 0o600)
}

// socketPath returns the socket's path, or a shorter one by a file descriptor: the kernel limits it to 107 bytes.
func socketPath(stateDir string) (path string, done func(), err error) {
	if path := Socket(stateDir); len(path) < 108 {
		return path, func() {}, nil
	}
	d, err := os.Open(stateDir)
	if err != nil {
		return "", nil, fmt.Errorf("state directory: %w", err)
	}
	return filepath.Join(fmt.Sprintf("/proc/self/fd/%d", d.Fd()), filepath.Base(Socket(stateDir))), func() {
		_ = d.Close()
	}, nil
}

// Status is the state of the server.
type Status struct {
	PID     int              `json:"pid"`
	Pods    int              `json:"pods"`
	Network confdir.Snapshot `json:"network"`
	// Healthy is the health of the PLEG; Discarded counts events that it dropped.
	Healthy   bool          `json:"healthy"`
	Discarded uint64        `json:"discarded"`
	Recovered engine.Report `json:"recovered"`
}

func (s *Server) api(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		ok, _ := s.pleg.Healthy()
		respond(w, Status{
			PID: os.Getpid(), Pods: s.count(), Network: s.confs.Snapshot(), Healthy: ok, Discarded: s.pleg.Discarded(),
			Recovered: s.report,
		}, nil)
	})
	mux.HandleFunc("GET /v1/pods", func(w http.ResponseWriter, _ *http.Request) { respond(w, s.List(), nil) })
	mux.HandleFunc("POST /v1/pods", s.post)
	mux.HandleFunc("GET /v1/pods/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) {
		worker, err := s.find(r.PathValue("namespace"), r.PathValue("name"))
		if err != nil {
			respond(w, nil, err)
			return
		}
		respond(w, worker.detail(), nil)
	})
	mux.HandleFunc("DELETE /v1/pods/{namespace}/{name}", s.delete)
	srv := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, MaxHeaderBytes: 1 << 16,
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = srv.Shutdown(last) // finishes requests that are in progress
	})
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return fmt.Errorf("socket: %w", err)
	}
	<-ended
	return nil
}

func (s *Server) post(w http.ResponseWriter, r *http.Request) {
	pods, others, err := pod.Read(r.Body, r.URL.Query().Get("source"))
	if err != nil {
		respond(w, nil, err)
		return
	}
	out := ApplyResult{Others: others}
	for _, p := range pods {
		a, err := s.apply(p, "")
		if err != nil {
			respond(w, nil, err)
			return
		}
		out.Pods = append(out.Pods, a)
	}
	respond(w, out, nil)
}

// ApplyResult is the result of applying a manifest.
type ApplyResult struct {
	Pods   []AppliedPod `json:"pods"`
	Others []string     `json:"others,omitempty"` // objects of other kinds, which are ignored
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request) {
	worker, err := s.find(r.PathValue("namespace"), r.PathValue("name"))
	if err != nil {
		respond(w, nil, err)
		return
	}
	var grace *time.Duration
	if q := r.URL.Query().Get("grace"); q != "" {
		g, err := time.ParseDuration(q)
		if err != nil || g < 0 {
			respond(w, nil, model.Errorf(model.CodeInvalidConf, "write for example 5s", "grace %q is not a duration", q))
			return
		}
		grace = &g
	}
	respond(w, struct{}{}, s.terminate(worker, grace, r.URL.Query().Get("force") == "true"))
}

// apiError is the body of an error response.
type apiError struct {
	Code model.Code `json:"code"`
	Msg  string     `json:"message"`
	Hint string     `json:"hint,omitempty"`
}

func respond(w http.ResponseWriter, v any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		e := apiError{Code: model.CodeInternal, Msg: err.Error()}
		var f *model.Error
		if errors.As(err, &f) {
			e = apiError{Code: f.Code, Msg: f.Msg, Hint: f.Hint}
		}
		w.WriteHeader(http.StatusUnprocessableEntity)
		v = e
	}
	_ = json.NewEncoder(w).Encode(v) // fails only if the client has disconnected
}
