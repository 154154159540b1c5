// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// Stream is a response of many JSON documents, one a line, until it returns or the client is gone, when ctx ends. A
// client that does not read blocks it, and is taken for gone after a minute.
type Stream func(ctx context.Context, lines *Lines) error

// Lines are the documents of a Stream.
type Lines struct {
	encoder *json.Encoder
	flush   func() error
}

// Send sends a document; it may wait in a buffer until Flush.
func (l *Lines) Send(document any) error { return l.encoder.Encode(document) }

// Flush sends the documents that wait.
func (l *Lines) Flush() error { return l.flush() }

// stallTime is how long a client may read nothing of what is sent.
const stallTime = time.Minute

// streamBuffer is how much waits for a Flush, in bytes.
const streamBuffer = 64 << 10

// Serve sends the documents. An error is the last line, a document of one field, "error".
func (s Stream) Serve(w http.ResponseWriter, r *http.Request, log *slog.Logger) {
	s.serveWithin(stallTime, w, r, r.Method+" "+r.URL.Path, log)
}

func (s Stream) serveWithin(stall time.Duration, w http.ResponseWriter, r *http.Request, pattern string, log *slog.Logger) {
	c := http.NewResponseController(w)
	if err := errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{})); err != nil {
		log.Debug("stream cannot outlive the deadline of a request", "request", pattern, "err", err)
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	sent := stallWriter{w, c, stall}
	out := bufio.NewWriterSize(sent, streamBuffer)
	lines := &Lines{json.NewEncoder(out), func() error { return errors.Join(out.Flush(), sent.flush()) }}
	_, err := guarded(func(r *http.Request) (any, error) { return nil, s(r.Context(), lines) }, r, pattern, log)
	if err != nil && r.Context().Err() == nil {
		err = lines.Send(streamEnd{Error: refusal(err)})
	}
	if err = errors.Join(err, lines.Flush()); err != nil {
		log.Debug("client of a stream is gone", "request", pattern, "err", err)
	}
}

// stallWriter fails if the client does not read for a time.
type stallWriter struct {
	http.ResponseWriter
	c     *http.ResponseController
	stall time.Duration
}

func (s stallWriter) Write(b []byte) (int, error) {
	defer s.limit()()
	return s.ResponseWriter.Write(b)
}

func (s stallWriter) flush() error {
	defer s.limit()()
	return s.c.Flush()
}

// limit ends what is written now after the time, until the result is called.
func (s stallWriter) limit() func() bool {
	return time.AfterFunc(s.stall, func() {
		_ = s.c.SetWriteDeadline(time.Unix(1, 0)) // past; a connection without deadlines is a test's
	}).Stop
}

// streamEnd is the last line of a stream that failed.
type streamEnd struct {
	Error Refusal `json:"error"`
}

// endPrefix is how a streamEnd begins; no document of a stream does.
const endPrefix = `{"error":{`

// maxLine limits a document of a stream, in bytes.
const maxLine = 4 << 20

// Stream sends the request and calls f for each document of the response, until the server ends it, f returns an error,
// or ctx ends. The error is ErrNoServer as that of Do. Timeout limits the wait for the first document and for each
// further one; 0: there is no limit.
func (q Request) Stream(ctx context.Context, f func(document []byte) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alive := func() {}
	if q.Timeout > 0 {
		late := time.AfterFunc(q.Timeout, func() { cancel(fmt.Errorf("%s: %w in %s", q.Socket, errSilent, q.Timeout)) })
		defer late.Stop()
		alive = func() { late.Reset(q.Timeout) }
	}
	answer, err := q.send(ctx)
	if err != nil {
		return cause(ctx, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if err := q.refused(answer); err != nil {
		return err
	}
	documents := bufio.NewScanner(answer.Body)
	documents.Buffer(make([]byte, streamBuffer), maxLine)
	for documents.Scan() {
		alive()
		line := documents.Bytes()
		if bytes.HasPrefix(line, []byte(endPrefix)) {
			var end streamEnd
			if err := json.Unmarshal(line, &end); err != nil {
				return fmt.Errorf("%s: %w", q.Socket, err)
			}
			return end.Error.error()
		}
		if err := f(line); err != nil {
			return err
		}
	}
	if err := documents.Err(); err != nil {
		return cause(ctx, fmt.Errorf("%s: %w", q.Socket, err))
	}
	return nil
}

// errSilent reports a server that sends nothing.
var errSilent = errors.New("no line of the stream")

// cause returns why ctx ended, if it did, else the error.
func cause(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil && !errors.Is(why, context.Canceled) {
		return why
	}
	return err
}
