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

// patience is how long one request may take. Nobody waits for it: what fails is tried again.
const patience = 10 * time.Second

// mostAnswer is the size of an answer with the leases of some tens of thousands of nodes.
const mostAnswer = 64 << 20 // bytes

// TTL is how long a lease lasts that nobody renews.
const TTL = 24 * time.Hour

// Access says how etcd is reached.
type Access struct {
	Endpoints []string
	// Prefix stands before all keys.
	Prefix string
	// KeyFile and CertFile are what the client shows, CAFile is what it trusts.
	KeyFile, CertFile, CAFile string
	Username, Password        string
}

// Config is a registry's.
type Config struct {
	Access
	// TTL is how long a lease lasts; 0 is TTL.
	TTL time.Duration
	Log *slog.Logger
	Now func() time.Time
	// After fires after a while.
	After func(time.Duration) <-chan time.Time
	// Random is a number below n.
	Random func(n int) int
}

// Registry is flannel's place in etcd.
type Registry struct {
	cfg Config
	tls *tls.Config
	log *slog.Logger

	mu   sync.Mutex
	conn *connection
	next int // which endpoint is next
}

// Open makes a registry. etcd is not asked anything yet, and need not be there.
func Open(cfg Config) (*Registry, error) {
	if cfg.TTL == 0 {
		cfg.TTL = TTL
	}
	r := &Registry{cfg: cfg, log: cfg.Log.With("room", "etcd")}
	r.cfg.Prefix = "/" + strings.Trim(cfg.Prefix, "/")
	var err error
	if r.tls, err = cfg.check(); err != nil {
		return nil, err
	}
	return r, nil
}

// check refuses what cannot work, and reads the certificates.
func (a Access) check() (*tls.Config, error) {
	secure := a.CAFile != "" || a.CertFile != ""
	if len(a.Endpoints) == 0 {
		return nil, model.Faultf(model.CodeInvalidConf, "write for example http://127.0.0.1:2379", "etcd-endpoints is empty")
	}
	for _, e := range a.Endpoints {
		u, err := url.Parse(e)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, model.Faultf(model.CodeInvalidConf, "write for example http://127.0.0.1:2379",
				"etcd-endpoints %q is no URL of an etcd", e)
		}
		secure = secure || u.Scheme == "https"
	}
	if strings.Trim(a.Prefix, "/") == "" {
		return nil, model.Faultf(model.CodeInvalidConf, "flannel's is /coreos.com/network",
			"etcd-prefix %q names no key", a.Prefix)
	}
	if (a.KeyFile == "") != (a.CertFile == "") {
		return nil, model.Faultf(model.CodeInvalidConf, "give both, or neither",
			"etcd-keyfile %q and etcd-certfile %q belong together", a.KeyFile, a.CertFile)
	}
	if a.Username == "" && a.Password != "" {
		return nil, model.Faultf(model.CodeInvalidConf, "give the user too", "etcd-password is given without etcd-username")
	}
	if !secure {
		return nil, nil
	}
	return a.certificates()
}

func (a Access) certificates() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.CertFile != "" {
		// Read again for every connection, so that a renewed one counts.
		load := func() (*tls.Certificate, error) {
			c, err := tls.LoadX509KeyPair(a.CertFile, a.KeyFile)
			return &c, err
		}
		if _, err := load(); err != nil {
			return nil, model.Faultf(model.CodeInvalidConf, "they are PEM files of a certificate and its key",
				"etcd-certfile %q, etcd-keyfile %q: %w", a.CertFile, a.KeyFile, err)
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	if a.CAFile == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(a.CAFile)
	if err != nil {
		return nil, model.Faultf(model.CodeInvalidConf, "it is a PEM file of certificates", "etcd-cafile %q: %w",
			a.CAFile, err)
	}
	cfg.RootCAs = x509.NewCertPool()
	if !cfg.RootCAs.AppendCertsFromPEM(pem) {
		return nil, model.Faultf(model.CodeInvalidConf, "it is a PEM file of certificates",
			"etcd-cafile %q has no certificate", a.CAFile)
	}
	return cfg, nil
}

// connection is what one endpoint is spoken with.
type connection struct {
	*grpc.ClientConn
	token string // where there are passwords
}

// raw hands messages on as they are; they are written and read in wire.go.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) {
	m, ok := v.(message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return m, nil
}

func (raw) Unmarshal(b []byte, v any) error {
	into, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T takes no message", v)
	}
	*into = slices.Clone(b)
	return nil
}

func (raw) Name() string { return "proto" }

// dial gives the connection to an endpoint that answered last, else to the next one.
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
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(mostAnswer)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: patience, Timeout: patience}))
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

// with adds what goes before each message: the token, and that an etcd without a leader is to say so.
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

// stream opens one that is asked once, and may answer often.
func (c *connection) stream(ctx context.Context, method string, m message) (grpc.ClientStream, error) {
	s, err := c.NewStream(c.with(ctx), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/etcdserverpb."+method)
	if err == nil {
		err = s.SendMsg(m)
	}
	return s, err
}

// ask makes one request of limited length, at each endpoint in turn until one answers.
func (r *Registry) ask(ctx context.Context, what string, f func(context.Context, *connection) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
		if !passing(err) {
			break
		}
		if c != nil {
			r.drop(c)
		}
	}
	return fmt.Errorf("etcd: %s: %w", what, err)
}

// passing tells whether the connection, and not the request, is what is wrong. A token that has expired is, too.
func passing(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Unauthenticated:
		return true
	}
	return false
}
