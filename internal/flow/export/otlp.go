// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
)

// OTLPConfig is a server of OTLP/HTTP logs.
type OTLPConfig struct {
	// URL is that of the server, as http://collector:4318; the path /v1/logs is added if it has none.
	URL string
	// HeadersFile, if not empty, has headers that are added to each request, a line NAME: VALUE for each. It is read with
	// the first request, and again after one that the server refused.
	HeadersFile string
	// Node and Version are attributes of the resource.
	Node, Version string
	// Dial connects; nil is as net.Dialer.
	Dial Dial
}

// otlpTimeout is the time of a request.
const otlpTimeout = 10 * time.Second

// otlp is the sink of a server of OTLP/HTTP with the encoding JSON (OTLP 1.x, "OTLP/HTTP").
type otlp struct {
	cfg    OTLPConfig
	url    string
	client *http.Client
	// headers are those of the file; nil before it is read.
	headers http.Header
}

// Check names what is wrong with the configuration.
func (c OTLPConfig) Check() error {
	if c.HeadersFile != "" && !filepath.IsAbs(c.HeadersFile) {
		return model.Errorf(model.CodeInvalidConf, "for example /etc/weft/otlp/headers", "headersFile %q is not absolute", c.HeadersFile)
	}
	_, err := c.logs()
	return err
}

// headers reads the file of headers.
func (c OTLPConfig) headers() (http.Header, error) {
	out := http.Header{}
	if c.HeadersFile == "" {
		return out, nil
	}
	b, err := os.ReadFile(c.HeadersFile)
	if err != nil {
		return nil, fmt.Errorf("headersFile: %w", err)
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || !httpguts.ValidHeaderFieldName(name) {
			// The line is not in the error: it may be a secret.
			return nil, model.Errorf(model.CodeInvalidConf, "write NAME: VALUE", "headersFile %s: line %d is no header", c.HeadersFile, n)
		}
		out.Add(name, strings.TrimSpace(value))
	}
	return out, nil
}

// logs returns the URL of the server's logs.
func (c OTLPConfig) logs() (string, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", model.Errorf(model.CodeInvalidConf, "for example http://collector.observability:4318",
			"url %q is not a URL of http or https", c.URL)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/logs"
	}
	return u.String(), nil
}

// NewOTLP returns a sink that posts log records. The server is not contacted yet.
func NewOTLP(c OTLPConfig) (Sink, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	u, err := c.logs()
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if c.Dial != nil {
		transport.DialContext = c.Dial
	}
	return &otlp{cfg: c, url: u, client: &http.Client{Timeout: otlpTimeout, Transport: transport}}, nil
}

func (s *otlp) String() string { return "OTLP " + s.url }

func (s *otlp) Close() error {
	s.client.CloseIdleConnections()
	return nil
}

// The messages of opentelemetry/proto/collector/logs/v1, as JSON: 64-bit numbers are strings.
type (
	otlpAttribute struct {
		Key   string    `json:"key"`
		Value otlpValue `json:"value"`
	}
	otlpValue struct {
		String *string `json:"stringValue,omitempty"`
		Int    *string `json:"intValue,omitempty"`
	}
	otlpRecord struct {
		Time           string          `json:"timeUnixNano"`
		Severity       int             `json:"severityNumber"`
		SeverityText   string          `json:"severityText"`
		Body           otlpValue       `json:"body"`
		Attributes     []otlpAttribute `json:"attributes"`
		ObservedAtNano string          `json:"observedTimeUnixNano"`
	}
	otlpScope struct {
		Scope   map[string]string `json:"scope"`
		Records []otlpRecord      `json:"logRecords"`
	}
	otlpResource struct {
		Resource map[string][]otlpAttribute `json:"resource"`
		Scopes   []otlpScope                `json:"scopeLogs"`
	}
	otlpRequest struct {
		Resources []otlpResource `json:"resourceLogs"`
	}
	otlpResponse struct {
		PartialSuccess struct {
			Rejected json.Number `json:"rejectedLogRecords"`
			Message  string      `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
)

// Severity numbers of the log data model.
const severityInfo, severityWarn = 9, 13

// Write posts a batch.
func (s *otlp) Write(ctx context.Context, batch []flow.Record) (int, error) {
	if s.headers == nil {
		var err error
		if s.headers, err = s.cfg.headers(); err != nil {
			return 0, err
		}
	}
	body, err := json.Marshal(s.request(batch))
	if err != nil {
		return 0, fmt.Errorf("OTLP: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("OTLP: %w", err)
	}
	maps.Copy(r.Header, s.headers)
	r.Header.Set("Content-Type", "application/json")
	answer, err := s.client.Do(r)
	if err != nil {
		return 0, fmt.Errorf("OTLP: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	switch code := answer.StatusCode; {
	case code == http.StatusTooManyRequests || code == http.StatusBadGateway || code == http.StatusServiceUnavailable ||
		code == http.StatusGatewayTimeout: // those that OTLP says to retry
		return 0, fmt.Errorf("OTLP: %s", answer.Status)
	case code < 200 || code > 299:
		s.headers = nil
		return 0, fmt.Errorf("OTLP: %w: %s: %s", ErrRefused, answer.Status, strings.TrimSpace(string(text)))
	case err != nil:
		return len(batch), nil //nolint:nilerr // the server has them
	}
	var says otlpResponse
	if json.Unmarshal(text, &says) == nil {
		if n, _ := says.PartialSuccess.Rejected.Int64(); n > 0 && n <= int64(len(batch)) {
			return len(batch) - int(n), fmt.Errorf("OTLP: %w: %s", ErrRefused, says.PartialSuccess.Message)
		}
	}
	return len(batch), nil
}

func (s *otlp) request(batch []flow.Record) otlpRequest {
	records := make([]otlpRecord, 0, len(batch))
	for _, r := range batch {
		records = append(records, logRecord(r))
	}
	return otlpRequest{Resources: []otlpResource{{
		Resource: map[string][]otlpAttribute{"attributes": {
			text("service.name", "weft"), text("service.version", s.cfg.Version), text("k8s.node.name", s.cfg.Node),
		}},
		Scopes: []otlpScope{{Scope: map[string]string{"name": "weft.flow"}, Records: records}},
	}}}
}

// logRecord is a flow. Attributes have the names of the semantic conventions where these have one.
func logRecord(r flow.Record) otlpRecord {
	severity, severityText := severityInfo, "INFO"
	if r.Verdict != flow.Allowed {
		severity, severityText = severityWarn, "WARN"
	}
	at, body := strconv.FormatInt(r.Time.UnixNano(), 10), r.Compact(false)
	a := []otlpAttribute{
		text("weft.flow.kind", string(r.Kind)), text("weft.flow.verdict", string(r.Verdict)), text("network.transport", r.Protocol),
		text("network.io.direction", r.Direction), text("source.address", r.From.Addr.String()),
		number("source.port", uint64(r.From.Port)), text("weft.source.kind", string(r.From.Kind)), text("weft.source.name", r.From.Name),
		text("destination.address", r.To.Addr.String()), number("destination.port", uint64(r.To.Port)),
		text("weft.destination.kind", string(r.To.Kind)), text("weft.destination.name", r.To.Name),
		text("weft.reason", r.Why()),
	}
	if r.Via != nil {
		a = append(a, text("weft.via.address", r.Via.Addr.String()), number("weft.via.port", uint64(r.Via.Port)),
			text("weft.via.name", r.Via.Name))
	}
	if r.Forth != nil && r.Back != nil {
		a = append(a, number("weft.forth.packets", r.Forth.Packets), number("weft.forth.bytes", r.Forth.Bytes),
			number("weft.back.packets", r.Back.Packets), number("weft.back.bytes", r.Back.Bytes))
	}
	a = slices.DeleteFunc(a, func(x otlpAttribute) bool { return x.Value.String != nil && *x.Value.String == "" })
	return otlpRecord{
		Time: at, ObservedAtNano: at, Severity: severity, SeverityText: severityText, Body: otlpValue{String: &body}, Attributes: a,
	}
}

func text(key, value string) otlpAttribute { return otlpAttribute{key, otlpValue{String: &value}} }

func number(key string, value uint64) otlpAttribute {
	s := strconv.FormatUint(value, 10)
	return otlpAttribute{key, otlpValue{Int: &s}}
}
