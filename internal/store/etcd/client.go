// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/weft-net/weft/internal/model"
)

// patience is how long one request may take. Nobody waits for it: what fails is tried again.
const patience = 10 * time.Second

// TTL is how long a lease lasts that nobody renews.
const TTL = 24 * time.Hour

// Probe is how often an etcd that says nothing is asked whether it is the same one.
const Probe = 30 * time.Second

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
	// Probe is how often an etcd that says nothing is asked whether it is the same one; 0 is Probe.
	Probe time.Duration
	Log   *slog.Logger
	Now   func() time.Time
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

	mu     sync.Mutex
	client *clientv3.Client
}

// Open makes a registry. etcd is not asked anything yet, and need not be there.
func Open(cfg Config) (*Registry, error) {
	if cfg.TTL == 0 {
		cfg.TTL = TTL
	}
	if cfg.Probe == 0 {
		cfg.Probe = Probe
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
			return nil, model.Faultf(model.CodeInvalidConf, "write for example http://127.0.0.1:2379", "etcd-endpoints %q is no URL of an etcd", e)
		}
		secure = secure || u.Scheme == "https"
	}
	if strings.Trim(a.Prefix, "/") == "" {
		return nil, model.Faultf(model.CodeInvalidConf, "flannel's is /coreos.com/network", "etcd-prefix %q names no key", a.Prefix)
	}
	if (a.KeyFile == "") != (a.CertFile == "") {
		return nil, model.Faultf(model.CodeInvalidConf, "give both, or neither", "etcd-keyfile %q and etcd-certfile %q belong together", a.KeyFile, a.CertFile)
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
			return nil, model.Faultf(model.CodeInvalidConf, "they are PEM files of a certificate and its key", "etcd-certfile %q, etcd-keyfile %q: %w", a.CertFile, a.KeyFile, err)
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	if a.CAFile == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(a.CAFile)
	if err != nil {
		return nil, model.Faultf(model.CodeInvalidConf, "it is a PEM file of certificates", "etcd-cafile %q: %w", a.CAFile, err)
	}
	cfg.RootCAs = x509.NewCertPool()
	if !cfg.RootCAs.AppendCertsFromPEM(pem) {
		return nil, model.Faultf(model.CodeInvalidConf, "it is a PEM file of certificates", "etcd-cafile %q has no certificate", a.CAFile)
	}
	return cfg, nil
}

// dial gives the client; a client with a password asks etcd when it is made, so that it is made when it is needed.
func (r *Registry) dial(ctx context.Context) (*clientv3.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client != nil {
		return r.client, nil
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: r.cfg.Endpoints, TLS: r.tls, Username: r.cfg.Username, Password: r.cfg.Password,
		DialTimeout: patience, DialKeepAliveTime: patience, DialKeepAliveTimeout: patience,
		Context: context.WithoutCancel(ctx), Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("etcd %s: %w", strings.Join(r.cfg.Endpoints, ","), err)
	}
	r.client = c
	return c, nil
}

// Close ends the connections. Leases stay.
func (r *Registry) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client == nil {
		return nil
	}
	err := r.client.Close()
	r.client = nil
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// ask makes one request of limited length.
func (r *Registry) ask(ctx context.Context, what string, f func(context.Context, *clientv3.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := r.dial(ctx)
	if err == nil {
		err = f(ctx, c)
	}
	if err != nil {
		return fmt.Errorf("etcd: %s: %w", what, err)
	}
	return nil
}
