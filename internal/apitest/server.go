// SPDX-License-Identifier: Apache-2.0

// Package apitest runs a real etcd and a real kube-apiserver for tests, with their own certificate authority, in the
// test's namespace or in another one. Nothing of them outlives the test.
//
// The programs are taken from $WEFT_KUBE_BIN_DIR, or from where test/kube/build.sh puts them; without them a test is
// skipped.
package apitest

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// adminToken is the token with all permissions.
const adminToken = "admin"

// startLimit is how long a server may take to become ready, on a busy host.
const startLimit = 3 * time.Minute

// Servers listen on ports of this range. It is below the kernel's range of ephemeral ports (ip_local_port_range, from
// 32768): a connection or a listener that asks the kernel for a port cannot take one before its server listens.
const (
	firstPort, lastPort uint16 = 20000, 32767
	portTries                  = 100
)

// Server is an API server with its etcd.
type Server struct {
	URL string
	// CAFile is the certificate of the certificate authority.
	CAFile string

	t      testing.TB
	dir    string
	bin    string
	ns     *netns.NS
	addr   string
	etcd   string
	ca     *authority
	serve  tls.Certificate
	client *http.Client
	api    *process
	args   []string
}

// Start starts both and waits until they are ready. They listen at addr in the namespace; nil is the test's own.
func Start(t testing.TB, ns *netns.NS, addr netip.Addr, args ...string) *Server {
	t.Helper()
	s := &Server{t: t, dir: t.TempDir(), bin: programs(t), ns: ns, args: args}
	if err := s.inNamespace(exec.Command("ip", "link", "set", "lo", "up").Run); err != nil { // etcd listens there
		t.Fatalf("ip link set lo up: %v", err)
	}
	s.addr = netip.AddrPortFrom(addr, s.port(addr)).String()
	s.URL = "https://" + s.addr
	s.etcd = fmt.Sprintf("http://127.0.0.1:%d", s.port(netip.MustParseAddr("127.0.0.1")))
	peer := fmt.Sprintf("http://127.0.0.1:%d", s.port(netip.MustParseAddr("127.0.0.1")))
	s.ca = newAuthority(t)
	s.serve = s.ca.issue(t, s.dir, "serve", addr)
	s.CAFile = filepath.Join(s.dir, "ca.crt")
	s.write("ca.crt", s.ca.pem)
	s.write("tokens.csv", []byte(adminToken+",admin,admin,\"system:masters\"\n"))
	private, public := keyPair(t)
	s.write("sa.key", private)
	s.write("sa.pub", public)
	s.client = s.HTTP()
	etcd := s.run("etcd", "--name", "e0", "--data-dir", s.path("etcd"), "--listen-client-urls", s.etcd,
		"--advertise-client-urls", s.etcd,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "e0="+peer,
		"--unsafe-no-fsync", "--log-level", "warn")
	s.waitListening(etcd, s.etcd) // an API server exits after 20 seconds without etcd
	s.Restart()
	return s
}

func programs(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("WEFT_KUBE_BIN_DIR")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(home, ".cache/weft/kube-v1.36.3/bin")
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			nettest.SkipMissing(t, "no "+name+" in "+dir+": build it with test/kube/build.sh, or set WEFT_KUBE_BIN_DIR")
		}
	}
	return dir
}

// Stop kills the API server; etcd stays.
func (s *Server) Stop() { s.api.kill() }

// PID returns the API server's process ID.
func (s *Server) PID() int { return s.api.cmd.Process.Pid }

// Restart starts a stopped API server again and waits until it is ready.
func (s *Server) Restart() {
	s.t.Helper()
	s.api = s.run("kube-apiserver", append([]string{
		"--etcd-servers=" + s.etcd, "--secure-port=" + s.addr[strings.LastIndex(s.addr, ":")+1:], "--bind-address=0.0.0.0",
		"--advertise-address=" + s.addr[:strings.LastIndex(s.addr, ":")], "--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file=" + s.path("serve.crt"), "--tls-private-key-file=" + s.path("serve.key"),
		"--token-auth-file=" + s.path("tokens.csv"), "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + s.path("sa.pub"), "--service-account-signing-key-file=" + s.path("sa.key"),
		"--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
	}, s.args...)...)
	until := time.Now().Add(startLimit)
	for {
		code, _, err := s.try(http.MethodGet, "/readyz", "", nil)
		if err == nil && code == http.StatusOK {
			return
		}
		if time.Now().After(until) || s.api.dead() {
			s.t.Fatalf("kube-apiserver is not ready: %d %v\n%s", code, err, s.api.tail())
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Do makes a request with all permissions, and fails the test when it fails. A body is JSON as a string, or a value
// that is marshaled to it.
func (s *Server) Do(method, path string, body any) []byte {
	s.t.Helper()
	kind := "application/json"
	if method == http.MethodPatch {
		kind = "application/merge-patch+json"
	}
	b, ok := body.(string)
	if !ok && body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			s.t.Fatal(err)
		}
		b = string(raw)
	}
	code, answer, err := s.try(method, path, kind, []byte(b))
	if err != nil || code >= 300 {
		s.t.Fatalf("%s %s: %d %v %s", method, path, code, err, answer)
	}
	return answer
}

func (s *Server) try(method, path, kind string, body []byte) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.URL+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(answer.Body)
	return answer.StatusCode, b, err
}

// HTTP returns a client that trusts the server and dials from its namespace.
func (s *Server) HTTP() *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: s.ca.pool(), MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
			err = s.inNamespace(func() error {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
				return err
			})
			return conn, err
		},
	}}
}

// Kubeconfig writes a kubeconfig for a server at that URL and returns its path; an empty token means adminToken.
func (s *Server) Kubeconfig(url, token string) string {
	if token == "" {
		token = adminToken
	}
	f, err := os.CreateTemp(s.dir, "kubeconfig")
	if err == nil {
		_, err = fmt.Fprintf(f, `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"clusters": [{"name": "c", "cluster": {"server": %q, "certificate-authority": %q}}],
"users": [{"name": "c", "user": {"token": %q}}],
"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}`, url, s.CAFile, token)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	_ = f.Close()
	return f.Name()
}

// Token creates a token of a service account that is valid as long as the pod or secret that it is bound to.
func (s *Server) Token(namespace, account, kind, name, uid string) string {
	s.t.Helper()
	var answer struct{ Status struct{ Token string } }
	raw := s.Do(http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+account+"/token", map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"spec": map[string]any{
			"expirationSeconds": 600, "boundObjectRef": map[string]any{
				"apiVersion": "v1", "kind": kind, "name": name, "uid": uid,
			},
		},
	})
	if err := json.Unmarshal(raw, &answer); err != nil || answer.Status.Token == "" {
		s.t.Fatalf("token: %v %s", err, raw)
	}
	return answer.Status.Token
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

func (s *Server) write(name string, b []byte) {
	if err := os.WriteFile(s.path(name), b, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) inNamespace(f func() error) error {
	if s.ns == nil {
		return f()
	}
	return s.ns.Do(f)
}

// port returns a port that is free now, and that the kernel does not choose for others.
func (s *Server) port(addr netip.Addr) uint16 {
	s.t.Helper()
	var port uint16
	err := s.inNamespace(func() error {
		var err error
		for range portTries {
			port = firstPort + rand.N[uint16](lastPort-firstPort+1)
			var l net.Listener
			if l, err = net.Listen("tcp", netip.AddrPortFrom(addr, port).String()); err == nil {
				return l.Close()
			}
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return port
}
