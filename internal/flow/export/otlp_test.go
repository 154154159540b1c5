// SPDX-License-Identifier: Apache-2.0

package export_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/flow/export"
)

// TestOTLP: OpenTelemetry's own types decode the request, and have each value of the flow.
func TestOTLP(t *testing.T) {
	var got collector.ExportLogsServiceRequest
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = protojson.Unmarshal(body, &got) // unknown fields are an error
		}
		if err != nil || r.URL.Path != "/v1/logs" || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("X-Tenant") != "a" {
			t.Errorf("%s %v: %v", r.URL, r.Header, err)
		}
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	headers := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(headers, []byte("\nX-Tenant: a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := export.NewOTLP(export.OTLPConfig{URL: server.URL, HeadersFile: headers, Node: "node1", Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	denied := record(1)
	denied.Verdict, denied.Reason = flow.DeniedVerdict, "policy"
	ended := record(2)
	ended.Kind, ended.Forth, ended.Back = flow.End, &flow.Counters{Packets: 3, Bytes: 180}, &flow.Counters{Packets: 2, Bytes: 120}
	if n, err := s.Write(t.Context(), []flow.Record{denied, ended}); err != nil || n != 2 {
		t.Fatalf("%d: %v", n, err)
	}
	records := got.ResourceLogs[0].ScopeLogs[0].LogRecords
	value := func(i int, key string) any {
		for _, a := range records[i].Attributes {
			if a.Key == key {
				if s := a.Value.GetStringValue(); s != "" {
					return s
				}
				return a.Value.GetIntValue()
			}
		}
		return nil
	}
	for _, c := range []struct {
		at   int
		key  string
		want any
	}{
		{0, "weft.flow.verdict", "denied"}, {0, "source.address", "10.42.1.2"}, {0, "source.port", int64(1)},
		{0, "destination.port", int64(5432)}, {0, "weft.source.name", "shop/web"}, {0, "weft.destination.name", "shop/db"},
		{0, "weft.reason", "policy"}, {0, "weft.back.bytes", nil},
		{1, "weft.flow.kind", "end"}, {1, "weft.forth.bytes", int64(180)}, {1, "weft.back.packets", int64(2)},
	} {
		if got := value(c.at, c.key); got != c.want {
			t.Errorf("record %d, %s: %v, want %v", c.at, c.key, got, c.want)
		}
	}
	if records[0].SeverityText != "WARN" || records[1].SeverityText != "INFO" || records[0].TimeUnixNano != 1_800_000_000_123_000_000 {
		t.Errorf("%+v", records)
	}
}

// TestOTLPAnswers: which answers mean that flows are sent again, and which that they are not.
func TestOTLPAnswers(t *testing.T) {
	status, body := 0, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	s, err := export.NewOTLP(export.OTLPConfig{URL: server.URL + "/own/path"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		status          int
		body            string
		sent            int
		failed, refused bool
	}{
		{200, "", 3, false, false},
		{200, `{"partialSuccess": {"rejectedLogRecords": "1", "errorMessage": "too old"}}`, 2, true, true},
		{200, `{"partialSuccess": {"rejectedLogRecords": 0, "errorMessage": "slow down"}}`, 3, false, false},
		{429, "", 0, true, false}, {503, "", 0, true, false},
		{400, "no such tenant", 0, true, true}, {401, "", 0, true, true},
	} {
		status, body = c.status, c.body
		n, err := s.Write(t.Context(), []flow.Record{record(1), record(2), record(3)})
		if n != c.sent || (err != nil) != c.failed || errors.Is(err, export.ErrRefused) != c.refused {
			t.Errorf("%d %s: %d sent, %v", c.status, c.body, n, err)
		}
	}
	server.Close()
	if n, err := s.Write(t.Context(), []flow.Record{record(1)}); n != 0 || err == nil || errors.Is(err, export.ErrRefused) {
		t.Errorf("no server: %d sent, %v", n, err)
	}
}

// TestOTLPHeaders: a token that was replaced in the file is used after the server has refused the last one. An error about
// the file does not have its content.
func TestOTLPHeaders(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer new" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "headers")
	s, err := export.NewOTLP(export.OTLPConfig{URL: server.URL, HeadersFile: file})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		sent int
		want string
	}{
		{"secret token", 0, "line 1 is no header"}, {"Authorization: Bearer old", 0, "401"}, {"Authorization: Bearer new", 1, ""},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := s.Write(t.Context(), []flow.Record{record(1)})
		if n != c.sent || (err != nil) != (c.want != "") || err != nil && (!contains(err.Error(), c.want) || contains(err.Error(), "secret")) {
			t.Errorf("%q: %d sent, %v", c.text, n, err)
		}
	}
}
