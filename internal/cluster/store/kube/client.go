// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/weft-net/weft/internal/model"
)

// serviceAccount is where a pod finds its token and the server's certificate authority.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// How many requests a second one agent makes at most, and how many at once after a pause. Lookups have their own
// measure: an ADD must not stand behind the annotations of other pods.
const (
	workQPS, workBurst     = 50, 100
	lookupQPS, lookupBurst = 20, 100
)

// Access says how the API server is reached.
type Access struct {
	// InCluster takes what every pod is given. Kubeconfig is the path of a file; one of the two is needed.
	InCluster  bool
	Kubeconfig string
	// Server is the server's URL where it is another than that of the two.
	Server string
	// Secrets is the directory of the service account's files; empty is where every pod has them.
	Secrets string
	Getenv  func(string) string
}

// clients are the same connections under two measures.
type clients struct {
	work, lookup *rest.RESTClient
	conns        *connrotation.Dialer
}

// How long a connection may take, and how often one that is idle is tried: the values of net/http.
const dialTimeout, keepAlive = 30 * time.Second, 30 * time.Second

// dial makes the clients. No request is made yet.
func (a Access) dial(agent string) (clients, error) {
	cfg, err := a.config()
	if err != nil {
		return clients{}, err
	}
	if a.Server != "" {
		cfg.Host = a.Server
	}
	cfg.UserAgent = agent
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.Timeout = 0 // of a watch, too
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return clients{}, a.fault("kubernetes.server %q: %w", cfg.Host, err)
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	}
	dialer := connrotation.NewDialer(cfg.Dial)
	cfg.Dial = dialer.DialContext
	conns, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return clients{}, a.fault("API server %s: %w", base, err)
	}
	work, err := client(base, conns, flowcontrol.NewTokenBucketRateLimiter(workQPS, workBurst))
	if err != nil {
		return clients{}, err
	}
	lookup, err := client(base, conns, flowcontrol.NewTokenBucketRateLimiter(lookupQPS, lookupBurst))
	return clients{work, lookup, dialer}, err
}

// Reconnect closes the connections to the server. What is under way fails and is tried again over a new one: nothing
// answers on a connection from an address that the node has lost, and nothing says so before its keepalive.
func (s *Store) Reconnect() { s.clients.conns.CloseAll() }

func client(base *url.URL, conns *http.Client, limit flowcontrol.RateLimiter) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, v1) // Status, the form of the server's errors
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.NewRESTClient(base, "/", rest.ClientContentConfig{
		AcceptContentTypes: runtime.ContentTypeJSON, ContentType: runtime.ContentTypeJSON, GroupVersion: v1,
		Negotiator: runtime.NewClientNegotiator(codecs, v1),
	}, limit, conns)
}

func (a Access) config() (*rest.Config, error) {
	if a.Kubeconfig != "" {
		cfg, err := clientcmd.BuildConfigFromFlags("", a.Kubeconfig)
		if err != nil {
			return nil, a.fault("kubernetes.kubeconfig %q: %w", a.Kubeconfig, err)
		}
		return cfg, nil
	}
	dir := a.Secrets
	if dir == "" {
		dir = serviceAccount
	}
	cfg := &rest.Config{
		// Read again every minute, and at once when the server refuses the token.
		WrapTransport: transport.ResettableTokenSourceWrapTransport(
			transport.NewCachedFileTokenSource(filepath.Join(dir, "token")),
		),
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "ca.crt")},
	}
	host, port := a.Getenv("KUBERNETES_SERVICE_HOST"), a.Getenv("KUBERNETES_SERVICE_PORT")
	switch {
	case a.Server != "":
	case host == "" || port == "":
		return nil, model.Faultf(model.CodeInvalidConf, "set kubernetes.kubeconfig outside of a pod, or kubernetes.server",
			"kubernetes.inCluster true: KUBERNETES_SERVICE_HOST %q and KUBERNETES_SERVICE_PORT %q are not what a pod has", host,
			port)
	default:
		cfg.Host = "https://" + net.JoinHostPort(host, port)
	}
	return cfg, nil
}

func (a Access) fault(format string, args ...any) error {
	return model.Faultf(model.CodeInvalidConf, "look at the agent's configuration, key kubernetes", "%w",
		fmt.Errorf(format, args...))
}
