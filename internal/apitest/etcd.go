// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// Etcd is an etcd without an API server.
type Etcd struct {
	URL string
	// With TLS: the certificate authority, and the client's certificate and key.
	CAFile, CertFile, KeyFile string

	s    *Server
	args []string
	p    *process
}

// StartEtcd starts an etcd that listens at addr in the namespace; nil is the test's own. With secure it requires TLS
// and a client certificate. Without an etcd program the test is skipped.
func StartEtcd(t testing.TB, ns *netns.NS, addr netip.Addr, secure bool) *Etcd {
	t.Helper()
	s := &Server{t: t, dir: t.TempDir(), bin: filepath.Dir(etcdProgram(t)), ns: ns}
	if err := s.inNamespace(exec.Command("ip", "link", "set", "lo", "up").Run); err != nil {
		t.Fatalf("ip link set lo up: %v", err)
	}
	e := &Etcd{s: s}
	at := netip.AddrPortFrom(addr, s.port(addr)).String()
	peer := "http://" + netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"),
		s.port(netip.MustParseAddr("127.0.0.1"))).String()
	e.URL = "http://" + at
	if secure {
		e.URL = "https://" + at
		s.ca = newAuthority(t)
		s.ca.issue(t, s.dir, "serve", addr)
		s.ca.issue(t, s.dir, "client", addr)
		s.write("ca.crt", s.ca.pem)
		e.CAFile, e.CertFile, e.KeyFile = s.path("ca.crt"), s.path("client.crt"), s.path("client.key")
		e.args = []string{
			"--cert-file", s.path("serve.crt"), "--key-file", s.path("serve.key"), "--client-cert-auth", "--trusted-ca-file",
			s.path("ca.crt"),
		}
	}
	e.args = append(e.args, "--name", "e0", "--data-dir", s.path("etcd"), "--listen-client-urls", e.URL,
		"--advertise-client-urls", e.URL,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "e0="+peer,
		"--log-level", "error")
	e.Restart()
	return e
}

// etcdProgram returns the etcd that is built for tests, else the distribution's.
func etcdProgram(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("WEFT_KUBE_BIN_DIR")
	if home, err := os.UserHomeDir(); err == nil && dir == "" {
		dir = filepath.Join(home, ".cache/weft/kube-v1.36.3/bin")
	}
	if path := filepath.Join(dir, "etcd"); exec.Command(path, "--version").Run() == nil {
		return path
	}
	path, err := exec.LookPath("etcd")
	if err != nil {
		nettest.SkipMissing(t, "no etcd: install etcd-server, or set WEFT_KUBE_BIN_DIR")
	}
	return path
}

// Stop kills the server; its data stays.
func (e *Etcd) Stop() { e.p.kill() }

// DeleteData deletes the data of a stopped server.
func (e *Etcd) DeleteData() {
	if err := os.RemoveAll(e.s.path("etcd")); err != nil {
		e.s.t.Fatal(err)
	}
}

// Restart starts a stopped server again and waits until it listens.
func (e *Etcd) Restart() {
	e.s.t.Helper()
	e.p = e.s.run("etcd", e.args...)
	e.s.waitListening(e.p, e.URL)
}

// waitListening waits until an etcd listens.
func (s *Server) waitListening(p *process, url string) {
	s.t.Helper()
	until := time.Now().Add(startLimit)
	for {
		err := s.inNamespace(func() error {
			c, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", url[len(scheme(url)):])
			if err == nil {
				_ = c.Close()
			}
			return err
		})
		if err == nil {
			return
		}
		if time.Now().After(until) || p.dead() {
			s.t.Fatal(fmt.Errorf("etcd does not listen: %w\n%s", err, p.tail()))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func scheme(url string) string {
	if url[:5] == "https" {
		return "https://"
	}
	return "http://"
}
