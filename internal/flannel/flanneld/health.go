// SPDX-License-Identifier: Apache-2.0

package flanneld

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// health is the state of /readyz: a daemon is ready once subnet.env is written and the rules are installed, and from
// then on.
type health struct {
	mu      sync.Mutex
	trouble map[string]string
	ready   bool
}

func newHealth() *health {
	const yet = "not yet done"
	return &health{trouble: map[string]string{"mesh": yet, "subnet file": yet, "rules": yet}}
}

func (h *health) setProblem(part string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trouble[part] = err.Error()
}

func (h *health) clearProblem(part string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.trouble, part)
}

// becameReady returns true once, when no problem is left.
func (h *health) becameReady() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ready || len(h.trouble) > 0 {
		return false
	}
	h.ready = true
	return true
}

// isReady reports whether the daemon has been ready.
func (h *health) isReady() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ready
}

// problem returns why the daemon is not ready; empty: it is.
func (h *health) problem() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ready {
		return ""
	}
	var all []string
	for _, part := range slices.Sorted(maps.Keys(h.trouble)) {
		all = append(all, part+": "+h.trouble[part])
	}
	if len(all) == 0 {
		return "in a moment"
	}
	return strings.Join(all, "; ")
}

// serve serves /healthz and /readyz; port 0: it does not.
func (h *health) serve(ctx context.Context, ip string, port int, log *slog.Logger) (stop func(), err error) {
	if port == 0 {
		return func() {}, nil
	}
	at := net.JoinHostPort(ip, strconv.Itoa(port))
	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, model.Errorf(model.CodeInvalidConf, "choose another --healthz-port; 0 is none",
			"--healthz-ip %s, --healthz-port %d: %w", ip, port, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "flanneld is running") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := h.problem(); why != "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, "flanneld is not ready yet: "+why)
			return
		}
		fmt.Fprint(w, "flanneld is ready")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("daemon could not serve the health port", "err", err)
		}
	}()
	return func() {
		soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.Shutdown(soon)
		_ = server.Close()
		<-done
	}, nil
}
