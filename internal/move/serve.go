// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// Socket is the name of the socket in the agent's state directory.
const Socket = "move.sock"

// Limits of the server: root alone may speak to it, and says little.
const (
	askTime = 10 * time.Second
	askHead = 8 << 10
)

// Attachment is one of a machine on this node, as a Mover tells of it.
type Attachment struct {
	Machine   model.VMRef         `json:"machine"`
	Key       model.AttachmentKey `json:"attachment"`
	Addresses []netip.Addr        `json:"addresses"`
	// State is "here", "awaited", or "left".
	State string `json:"state"`
}

// Attachments are those of machines on this node.
func (m *Mover) Attachments() []Attachment {
	m.mu.Lock()
	followers := make([]*follower, 0, len(m.followers))
	for _, f := range m.followers {
		followers = append(followers, f)
	}
	m.mu.Unlock()
	out := []Attachment{}
	for _, f := range followers {
		rec, found, err := m.cfg.Records.Get(f.key)
		if err != nil || !found {
			continue
		}
		one := Attachment{Machine: f.vm, Key: f.key, Addresses: f.addrs, State: "here"}
		switch {
		case rec.Standby && rec.Request.Incoming() && f.left.Load() == 0:
			one.State = "awaited"
		case rec.Standby:
			one.State = "left"
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b Attachment) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return out
}

// Serve answers on a unix socket, which root alone may open, until ctx ends: GET /machines tells of those on this node, POST
// /here?namespace=…&name=… says that one runs here.
func (m *Mover) Serve(ctx context.Context, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("socket of moves: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil { // its path may be too long: that is no reason not to follow machines
		m.cfg.Log.Warn("nobody can say where machines are", "err", err)
		return nil
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(fmt.Errorf("socket of moves: %w", err), l.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /machines", func(w http.ResponseWriter, _ *http.Request) { tell(w, m.Attachments()) })
	mux.HandleFunc("POST /here", func(w http.ResponseWriter, r *http.Request) {
		namespace, name := r.FormValue("namespace"), r.FormValue("name")
		if m.Switch(namespace, name) == 0 {
			w.WriteHeader(http.StatusNotFound)
			tell(w, map[string]string{"error": fmt.Sprintf("machine %s/%s has no attachment on this node that can be switched", namespace, name)})
			return
		}
		tell(w, map[string]string{})
	})
	web := &http.Server{
		Handler: mux, ReadTimeout: askTime, WriteTimeout: askTime, MaxHeaderBytes: askHead,
		ErrorLog: slog.NewLogLogger(m.cfg.Log.Handler(), slog.LevelDebug),
	}
	defer context.AfterFunc(ctx, func() { _ = web.Close() })()
	if err := web.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("socket of moves: %w", err)
	}
	return nil
}

func tell(w http.ResponseWriter, what any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(what)
}
