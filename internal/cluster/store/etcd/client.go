// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weft-net/weft/internal/model"
)

// requestTimeout bounds one request. It is generous, because failed requests are retried in the background.
const requestTimeout = 10 * time.Second

// maxResponse suffices for the leases of some tens of thousands of nodes.
const maxResponse = 64 << 20 // bytes

// TTL is the lifetime of a lease that is not renewed.
const TTL = 24 * time.Hour

// Access configures the access to etcd.
type Access struct {
	Endpoints []string
	// Prefix is the prefix of all keys.
	Prefix string
	// KeyFile and CertFile are the client's certificate, CAFile is the trusted CA.
	KeyFile, CertFile, CAFile string
	Username, Password        string
}

// Config is a registry's.
type Config struct {
	Access
	// TTL is the lifetime of leases; 0 is the constant TTL.
	TTL time.Duration
	Log *slog.Logger
	Now func() time.Time
	// After fires after a duration.
	After func(time.Duration) <-chan time.Time
	// Random returns a number below n.
	Random func(n int) int
}

// Registry is flannel's subnet registry in etcd.
type Registry struct {
	cfg Config
	tls *tls.Config
	log *slog.Logger

	mu   sync.Mutex
	conn *connection
	next int // which endpoint is next
}

// Open creates a registry. It does not connect to etcd yet.
func Open(cfg Config) (*Registry, error) {
	if cfg.TTL == 0 {
		cfg.TTL = TTL
	}
	r := &Registry{cfg: cfg, log: cfg.Log.With("component", "etcd")}
	r.cfg.Prefix = "/" + strings.Trim(cfg.Prefix, "/")
	var err error
	if r.tls, err = cfg.check(); err != nil {
		return nil, err
	}
	return r, nil
}

// check validates the settings and reads the certificates.
func (a Access) check() (*tls.Config, error) {
	secure := a.CAFile != "" || a.CertFile != ""
	if len(a.Endpoints) == 0 {
		return nil, model.Errorf(model.CodeInvalidConf, "write for example http://127.0.0.1:2379", "etcd-endpoints is empty")
	}
	for _, e := range a.Endpoints {
		u, err := url.Parse(e)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, model.Errorf(model.CodeInvalidConf, "write for example http://127.0.0.1:2379",
				"etcd-endpoints %q is no URL of an etcd", e)
		}
		secure = secure || u.Scheme == "https"
	}
	if strings.Trim(a.Prefix, "/") == "" {
		return nil, model.Errorf(model.CodeInvalidConf, "flannel's is /coreos.com/network",
			"etcd-prefix %q names no key", a.Prefix)
	}
	if (a.KeyFile == "") != (a.CertFile == "") {
		return nil, model.Errorf(model.CodeInvalidConf, "set both, or neither",
			"etcd-keyfile %q and etcd-certfile %q belong together", a.KeyFile, a.CertFile)
	}
	if a.Username == "" && a.Password != "" {
		return nil, model.Errorf(model.CodeInvalidConf, "set the user too", "etcd-password is set without etcd-username")
	}
	if !secure {
		return nil, nil
	}
	return a.certificates()
}

func (a Access) certificates() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.CertFile != "" {
		// Read again for every connection, so that a renewed one is used.
		load := func() (*tls.Certificate, error) {
			c, err := tls.LoadX509KeyPair(a.CertFile, a.KeyFile)
			return &c, err
		}
		if _, err := load(); err != nil {
			return nil, model.Errorf(model.CodeInvalidConf, "they are PEM files of a certificate and its key",
				"etcd-certfile %q, etcd-keyfile %q: %w", a.CertFile, a.KeyFile, err)
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	if a.CAFile == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(a.CAFile)
	if err != nil {
		return nil, model.Errorf(model.CodeInvalidConf, "it is a PEM file of certificates", "etcd-cafile %q: %w",
			a.CAFile, err)
	}
	cfg.RootCAs = x509.NewCertPool()
	if !cfg.RootCAs.AppendCertsFromPEM(pem) {
		return nil, model.Errorf(model.CodeInvalidConf, "it is a PEM file of certificates",
			"etcd-cafile %q has no certificate", a.CAFile)
	}
	return cfg, nil
}

// connection is a connection to one endpoint.
type connection struct {
	*grpc.ClientConn
	token string // empty without authentication
}

// rawCodec passes encoded messages through; they are encoded and decoded in wire.go.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) {
	m, ok := v.(message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return m, nil
}

func (rawCodec) Unmarshal(b []byte, v any) error {
	into, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T takes no message", v)
	}
	*into = slices.Clone(b)
	return nil
}

func (rawCodec) Name() string { return "proto" }

// dial returns the connection to the endpoint that answered last, else to the next one.
func (r *Registry) dial(ctx context.Context) (*connection, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		return r.conn, nil
	}
	u, err := url.Parse(r.cfg.Endpoints[r.next%len(r.cfg.Endpoints)])
	if err != nil {
		return nil, err
	}
	secure := insecure.NewCredentials()
	if u.Scheme == "https" {
		secure = credentials.NewTLS(r.tls)
	}
	at := u.Host
	if u.Port() == "" {
		at = net.JoinHostPort(u.Hostname(), "2379")
	}
	c, err := grpc.NewClient("passthrough:///"+at, grpc.WithTransportCredentials(secure), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(maxResponse)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: requestTimeout, Timeout: requestTimeout}))
	if err != nil {
		return nil, err
	}
	conn := &connection{ClientConn: c}
	if r.cfg.Username != "" {
		if err := conn.authenticate(ctx, r.cfg.Username, r.cfg.Password); err != nil {
			_ = c.Close()
			r.next++
			return nil, err
		}
	}
	r.conn = conn
	return conn, nil
}

func (c *connection) authenticate(ctx context.Context, user, password string) error {
	answer, err := c.call(ctx, "Auth/Authenticate", message{}.text(1, user).text(2, password))
	if err != nil {
		return err
	}
	return read(answer, func(num protowire.Number, _ int64, inner []byte) error {
		if num == 2 {
			c.token = string(inner)
		}
		return nil
	})
}

// with adds the metadata of each request: the token, and that an etcd without a leader must return an error.
func (c *connection) with(ctx context.Context) context.Context {
	ctx = metadata.AppendToOutgoingContext(ctx, "hasleader", "true")
	if c.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "token", c.token)
	}
	return ctx
}

// call makes one request.
func (c *connection) call(ctx context.Context, method string, m message) ([]byte, error) {
	var answer []byte
	err := c.Invoke(c.with(ctx), "/etcdserverpb."+method, m, &answer)
	return answer, err
}

// stream opens a stream with one request and many answers.
func (c *connection) stream(ctx context.Context, method string, m message) (grpc.ClientStream, error) {
	s, err := c.NewStream(c.with(ctx), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/etcdserverpb."+method)
	if err == nil {
		err = s.SendMsg(m)
	}
	return s, err
}

// request makes one request with a timeout, at each endpoint in turn until one answers.
func (r *Registry) request(ctx context.Context, what string, f func(context.Context, *connection) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var err error
	for range r.cfg.Endpoints {
		var c *connection
		if c, err = r.dial(ctx); err == nil {
			err = f(ctx, c)
		}
		if err == nil {
			return nil
		}
		if !isTransient(err) {
			break
		}
		if c != nil {
			r.drop(c)
		}
	}
	return fmt.Errorf("etcd: %s: %w", what, err)
}

// isTransient reports whether an error is about the connection and not the request, or about an expired token.
func isTransient(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Unauthenticated:
		return true
	}
	return false
}
