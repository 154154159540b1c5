// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Event is what a stream sends when a view changes, or when it cannot be read any more.
type Event struct {
	// Data is what the view showed at AsOf, the last time that it could be read, in milliseconds since 1970; 0: never.
	Data json.RawMessage `json:"data,omitempty"`
	AsOf int64           `json:"asOf"`
	// Stale is why it cannot be read now, since the time Since in milliseconds; nil if it can.
	Stale *Failure `json:"stale,omitempty"`
	Since int64    `json:"since,omitempty"`
}

// events streams a view until the page closes.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	view, known := s.cfg.Views[r.URL.Query().Get("view")]
	if !known {
		refuse(w, http.StatusNotFound, "there is no such view")
		return
	}
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	var last Event
	for {
		began := s.cfg.Now()
		v, err := view.Read(r.Context(), r.URL.Query())
		if r.Context().Err() != nil {
			return
		}
		next := last.next(v, err, s.cfg.Now().UnixMilli())
		sent := next
		if bytes.Equal(next.Data, last.Data) {
			sent.Data = nil // the page has it
		}
		b, err := json.Marshal(sent)
		if err != nil {
			return
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", b); err != nil || out.Flush() != nil {
			return
		}
		last = next
		select {
		case <-r.Context().Done():
			return
		case <-time.After(view.pause(s.cfg.Now().Sub(began))):
		}
	}
}

// next returns the event after a view was read, or could not be.
func (e Event) next(v any, err error, now int64) Event {
	var data json.RawMessage
	if err == nil {
		data, err = json.Marshal(v)
	}
	if err == nil {
		return Event{Data: data, AsOf: now}
	}
	f := failure(err)
	e.Stale = &f
	if e.Since == 0 {
		e.Since = now
	}
	return e
}
